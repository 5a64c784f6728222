# midtrace: what a reasoning model knows before it has finished thinking.
# Without --configfile the demo runs; with it, that file is the whole config.
import os
import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.11")

sys.path.insert(0, os.path.join(workflow.basedir, "workflow"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))

from midtrace import codedigest
from midtrace import config as study_config
from midtrace.errors import InputError

if not workflow.config_settings.configfiles:

    configfile: "config/config.yaml"


try:
    config = study_config.validate(config, " + ".join(map(str, workflow.configfiles)) or "config")
except InputError as error:
    raise WorkflowError(f"midtrace: error: {error}")


include: "rules/common.smk"
include: "rules/items.smk"
include: "rules/traces.smk"
include: "rules/replay.smk"
include: "rules/probe.smk"
include: "rules/continuations.smk"
include: "rules/controls.smk"
include: "rules/decomposition.smk"


rule all:
    default_target: True
    input:
        rules.decomposition.input,
