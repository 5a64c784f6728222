# midtrace: what a reasoning model knows before it has finished thinking.
# Without --configfile the demo runs; with it, that file is the whole config.
import os
import sys

from snakemake.utils import min_version

min_version("9.11")

sys.path.insert(0, os.path.join(workflow.basedir, "workflow"))

from midtrace import codedigest, environment
from midtrace import config as study_config
from midtrace.errors import WRITABLE, InputError

try:
    environment.in_utf8()
except InputError as error:
    sys.exit(f"midtrace: error: {error}")
known = environment.of_jobs(os.environ, sys.path[0])  # jobs inherit it
os.environ.clear()
os.environ |= known

if not workflow.config_settings.configfiles:

    configfile: "config/config.yaml"


try:
    for path in workflow.configfiles:
        study_config.read_yaml(path)  # refuses repeated keys, of which Snakemake silently takes the last
    sources = [os.path.relpath(path) for path in workflow.configfiles] + ["--config"] * bool(workflow.config_settings.config)
    config = study_config.validate(config, " + ".join(sources))
except InputError as error:
    sys.exit(f"midtrace: error: {error}")  # one line; an exception would come with the lines that raised it


include: "rules/common.smk"
include: "rules/common_shards.smk"
include: "rules/common_resources.smk"
include: "rules/common_judge.smk"
include: "rules/items.smk"
include: "rules/traces.smk"
include: "rules/replay.smk"
include: "rules/probe.smk"
include: "rules/continuations.smk"
include: "rules/controls.smk"
include: "rules/interruptions.smk"
include: "rules/decomposition.smk"
include: "rules/claims.smk"
include: "rules/figures.smk"
include: "rules/report.smk"
include: "rules/shards.smk"
include: "rules/plan.smk"


if workflow.is_main_process:
    for warning in study_config.warnings(config):
        print(f"midtrace: warning: {warning}", file=sys.stderr)
    # As many GPU jobs at a time as there are GPUs; --resources gpu=N is another opinion.
    if HERE and GPUS and "gpu" not in workflow.resource_settings.resources:
        workflow.register_resource("gpu", GPUS)
    try:
        check_resources()
    except InputError as error:
        sys.exit(f"midtrace: error: {error}")


# Snakemake would stumble over it in the first job, with a traceback.
onstart:
    for folder in (RESULTS, LOGS):
        if os.path.isdir(folder) and not os.access(folder, os.W_OK):
            sys.exit(f"midtrace: error: {InputError(folder, 'folder', 'may not be written', WRITABLE)}")
    try:
        check_judge(workflow.dag.needrun_jobs())
    except InputError as error:
        sys.exit(f"midtrace: error: {error}")


# A stage's target asks for every file up to there, not only for the last: one that was deleted is made again.
rule all:
    default_target: True
    input:
        rules.report.input,
    message:
        f"all of the study is there: {RESULTS}/report.html"
