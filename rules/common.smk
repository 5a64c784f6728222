# Paths and settings shared by all rules. No rule here.
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from midtrace.config import interruptions as interruption_config
from midtrace.figures import catalogue
from midtrace.tables import DECOMPOSITION as TABLES
from midtrace.tables import INTERRUPTIONS as INTERRUPTION_TABLES
from midtrace.tables import TableKey

RESULTS = f"results/{config['study']}"
LOGS = f"logs/{config['study']}"
SHARD = "{model}/{benchmark}/{arm}/r{replicate}"
JOB = SHARD.replace("{", "{wildcards.")  # the same in a message
MODELS = study_config.selected(config, "models")
BENCHMARKS = study_config.selected(config, "benchmarks")
CHOICE_BENCHMARKS = study_config.choice_benchmarks(config)
ARMS = study_config.arms(config)
INTERVENTIONS = interruption_config.interventions(config)
NOTHING = "(?!)"  # a wildcard constraint that admits no name
# Tables of interruptions that have a figure.
FIGURE_TABLES = ("interruptions", "interruptions_leakage", "interruptions_errors")


def one_of(names):
    """A wildcard constraint that admits these names only."""
    return "|".join(map(re.escape, names))


wildcard_constraints:
    model=one_of(MODELS),
    benchmark=one_of(dict.fromkeys([*BENCHMARKS, *interruption_config.bases(config)])),
    arm=one_of(dict.fromkeys([*ARMS, *interruption_config.arms(config)])),
    intervention=one_of(INTERVENTIONS) or NOTHING,
    replicate=r"\d+",
    shard=r"\d+",


def run_keys(benchmarks=BENCHMARKS):
    """The tables of runs of these benchmarks: one per model, benchmark, arm and replicate."""
    return [
        TableKey(model, benchmark, arm, replicate)
        for benchmark in benchmarks
        for model in MODELS
        for arm in ARMS
        for replicate in range(study_config.replicates(config, benchmark))
    ]


def shards(folder, benchmarks=BENCHMARKS):
    """The files of a stage, one per table of runs."""
    return [key.path(f"{RESULTS}/{folder}") for key in run_keys(benchmarks)]


def key_of(wildcards):
    """The table that a job is about."""
    return TableKey(wildcards.model, wildcards.benchmark, wildcards.arm, int(wildcards.replicate), wildcards.get("intervention"))


def no_reason_to_rerun(function):
    """A params function that may give other values without a rerun: Snakemake records nothing of one that asks for ``threads``."""

    def params(wildcards, threads):
        return function(wildcards)

    return params


@cache
def made_settings(stage, module=study_config):
    """The function of wildcards that makes the settings of a stage, once for each."""
    return cache(partial(getattr(module, f"{stage}_settings"), config))


def settings_of(stage, module=study_config):
    """A params function: the settings of a stage for the wildcards of a job."""
    make = made_settings(stage, module)

    def settings(wildcards):
        return make(*wildcards)

    return settings


@cache
def code_digest(script, engine):
    """The digest of the code behind a script, for an engine."""
    return codedigest.digest(f"{workflow.basedir}/scripts/{script}", engine)


def code_of(script):
    """A params function: the digest of the code behind a rule, for the engine of its model."""

    def code(wildcards):
        model = config["models"].get(wildcards.get("model"))
        return code_digest(script, model and model["engine"])

    return code


def partner_traces(wildcards):
    """Raw traces of the arms that this arm is compared with."""
    key = key_of(wildcards)
    return [replace(key, arm=partner).path(f"{RESULTS}/raw/traces") for partner in study_config.partners(config, key.arm)]


def readouts_if_choice(wildcards):
    """The readouts of a shard, or nothing for a benchmark without options."""
    return key_of(wildcards).path(f"{RESULTS}/readouts") if wildcards.benchmark in CHOICE_BENCHMARKS else []


def is_code(wildcards):
    """Whether the answers of a job's benchmark are programs."""
    return config["benchmarks"][wildcards.benchmark.removesuffix(study_config.REVISED)]["answer_kind"] == "code"


def tests_if_code(wildcards):
    """The tests of a benchmark of code."""
    return f"{RESULTS}/items/{wildcards.benchmark}.tests.parquet" if is_code(wildcards) else []


def programs_if_code(wildcards):
    """A params function: how programs are run, for a benchmark of code."""
    return study_config.code_settings(config) if is_code(wildcards) else None


def grading_threads(wildcards):
    """Programs at a time; other answers are graded one by one."""
    return 4 if is_code(wildcards) else 1


def reference_traces(wildcards):
    """Raw traces, replicate 0, of the reference arm of the first comparison: the runs that the controls take apart."""
    key = TableKey(wildcards.model, wildcards.benchmark, config["comparisons"][0]["reference"], 0)
    return key.path(f"{RESULTS}/raw/traces")


def stage_files():
    """All shards of all stages, by stage."""
    return {
        "item_tables": expand(f"{RESULTS}/items/{{benchmark}}.parquet", benchmark=BENCHMARKS),
        "traces": shards("traces"),
        "cuts": shards("cuts"),
        "readouts": shards("readouts", CHOICE_BENCHMARKS),
        "continuations": shards("continuations"),
    }


def control_files():
    """Control tables, where the config asks for controls."""
    if not config["controls"]["items"]:
        return []
    return expand(f"{RESULTS}/controls/{{model}}/{{benchmark}}.parquet", model=MODELS, benchmark=CHOICE_BENCHMARKS)


def interruption_keys():
    """The tables of the interruption study: one per model, benchmark, arm, replicate and intervention."""
    return [
        TableKey(model, benchmark, arm, replicate, intervention)
        for benchmark in interruption_config.benchmarks(config)
        for model in MODELS
        for arm in interruption_config.arms(config)
        for replicate in interruption_config.replicates(config, benchmark)
        for intervention in interruption_config.interventions(config, benchmark)
    ]


def interruption_shards(folder):
    """The files of a stage of interruptions."""
    return [key.path(f"{RESULTS}/{folder}") for key in interruption_keys()]


def interruption_base_keys():
    """The tables of runs that interruptions start from or are compared with."""
    return [
        TableKey(model, base, arm, replicate)
        for base in interruption_config.bases(config)
        for model in MODELS
        for arm in interruption_config.arms(config)
        for replicate in interruption_config.replicates(config, base)
    ]


def interruption_base_traces():
    """Raw traces that interruptions start from or are compared with."""
    return [key.path(f"{RESULTS}/raw/traces") for key in interruption_base_keys()]


def interrupted_key(key):
    """The runs that an intervention interrupts: on the question, or on the revised one before an update."""
    base = interruption_config.base(config, key.benchmark, key.intervention)
    return replace(key, benchmark=base, intervention=None)


def interrupted_traces(wildcards):
    """Raw traces that an intervention interrupts."""
    return interrupted_key(key_of(wildcards)).path(f"{RESULTS}/raw/traces")


def interruption_tables():
    """Tables of estimates of interruptions, where the study has any."""
    return expand(f"{RESULTS}/decomposition/{{table}}.parquet", table=INTERRUPTION_TABLES) if INTERVENTIONS else []


def interruption_figures():
    """The list of the figures of interruptions, where the study has any. Not their folder: Snakemake compares the contents of files alone, so a
    folder with another time stamp would have the report written again."""
    return f"{RESULTS}/figures/interruptions.json" if INTERVENTIONS else []


def decomposition_files():
    """Tables of estimates, by name."""
    return {table: f"{RESULTS}/decomposition/{table}.parquet" for table in TABLES}


def figure_files(*formats):
    """Figures of the study in these formats."""
    return expand(f"{RESULTS}/figures/{{figure}}.{{format}}", figure=catalogue.stems(study_config.figures_settings(config)), format=formats)


def text_table_files():
    """Tables for readers: those of the decomposition, and those in the form that papers print."""
    return expand(f"{RESULTS}/tables/{{table}}.{{format}}", table=[*TABLES, *catalogue.PAPER_TABLES], format=["csv", "tex"])


def report_templates():
    """The templates of the report."""
    folder = Path(workflow.basedir, "workflow/midtrace/report")
    return sorted(path for path in folder.iterdir() if path.suffix in (".j2", ".css"))
