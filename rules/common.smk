# Paths and settings shared by all rules. No rule here.
import hashlib
import json
import os
import re
from functools import cache, partial
from pathlib import Path

from midtrace import devices, interruption_config, serving
from midtrace.figures import catalogue
from midtrace.tables import DECOMPOSITION as TABLES
from midtrace.tables import INTERRUPTIONS as INTERRUPTION_TABLES

RESULTS = f"results/{config['study']}"
LOGS = f"logs/{config['study']}"
SHARD = "{model}/{benchmark}/{arm}/r{replicate}"
JOB = SHARD.replace("{", "{wildcards.")  # the same in a message
MODELS = study_config.selected(config, "models")
BENCHMARKS = study_config.selected(config, "benchmarks")
CHOICE_BENCHMARKS = study_config.choice_benchmarks(config)
ARMS = study_config.arms(config)
INTERVENTIONS = interruption_config.interventions(config)
SHARDS = config["jobs"]["shards"]
PER_MODEL = config["jobs"]["engines"] == "per_model"
SHARDED = SHARDS > 1 or PER_MODEL  # whether jobs of their own do the engine's work
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


def shards(folder, benchmarks=BENCHMARKS):
    """The files of a stage, one per model, benchmark, arm and replicate."""
    return [
        path
        for benchmark in benchmarks
        for path in expand(
            f"{RESULTS}/{folder}/{SHARD}.parquet",
            model=MODELS,
            benchmark=benchmark,
            arm=ARMS,
            replicate=range(study_config.replicates(config, benchmark)),
        )
    ]


def settings_of(stage, module=study_config):
    """A params function: the settings of a stage for the wildcards of a job."""
    make = cache(partial(getattr(module, f"{stage}_settings"), config))

    def settings(wildcards):
        return make(*wildcards)

    return settings


def code_of(script):
    """A params function: the digest of the code behind a rule, for the engine of its model."""

    digest = cache(partial(codedigest.digest, f"{workflow.basedir}/scripts/{script}"))

    def code(wildcards):
        model = config["models"].get(wildcards.get("model"))
        return digest(model and model["engine"])

    return code


def machine_of(wildcards, threads):
    """A params function: where and how the engine of a model runs. It asks for ``threads``, so Snakemake takes it for no reason to rerun."""
    return config["models"][wildcards.model]["machine"]


def is_served(model):
    """Whether the jobs of a run share a server of a model entry."""
    return config["jobs"]["engines"] == "service" and model["engine"] == "vllm"


def service(name, model):
    """Where a model is served for the time of this run, as :func:`midtrace.serving.reach` takes it; None for one that jobs load."""
    if not is_served(model):
        return None
    return {"address": f"{RESULTS}/servers/{name}.json", "log": f"{LOGS}/servers/{name}.log", "owner": serving.process(os.getpid())}


def service_of(wildcards, threads):
    """A params function: the service of a model. It asks for ``threads`` as :func:`machine_of` does."""
    return service(wildcards.model, config["models"][wildcards.model])


def env_of(model):
    """The conda environment that holds the engine of a model entry; a served model needs none of its own."""
    return f"{workflow.basedir}/envs/{'vllm' if model['engine'] == 'vllm' else 'transformers'}.yaml"


def env_of_engine(wildcards):
    """The conda environment of a job of a model."""
    return env_of(config["models"][wildcards.model])


def gpus_of(model):
    """The GPUs that a job of a model entry asks for: none where the model is on a server."""
    if model["engine"] == "server" or is_served(model):
        return 0
    return min(devices.gpus(), model["machine"].get("tensor_parallel_size", 1))


def gpus_of_engine(wildcards):
    """A resources function: the GPUs that a job of a model asks for. A cluster profile overrides it: the machine that submits may have none."""
    return gpus_of(config["models"][wildcards.model])


def gpus_of_table(wildcards):
    """A resources function: the GPUs of a job that writes a table of the engine; none where item shards have done the engine's work."""
    return 0 if SHARDED else gpus_of_engine(wildcards)


def batch_of(few, many):
    """A resources function: Transformers pads what runs together, so ``few``; vLLM and a server schedule for themselves and want ``many``."""

    def batch(wildcards):
        return few if config["models"][wildcards.model]["engine"] == "transformers" else many

    return batch


def partner_traces(wildcards):
    """Raw traces of the arms that this arm is compared with."""
    return [
        f"{RESULTS}/raw/traces/{wildcards.model}/{wildcards.benchmark}/{partner}/r{wildcards.replicate}.parquet"
        for partner in study_config.partners(config, wildcards.arm)
    ]


def readouts_if_choice(wildcards):
    """The readouts of a shard, or nothing for a benchmark without options."""
    if wildcards.benchmark not in CHOICE_BENCHMARKS:
        return []
    return f"{RESULTS}/readouts/{wildcards.model}/{wildcards.benchmark}/{wildcards.arm}/r{wildcards.replicate}.parquet"


def is_code(wildcards):
    """Whether the answers of a job's benchmark are programs."""
    return config["benchmarks"][wildcards.benchmark.removesuffix(study_config.REVISED)]["answer_kind"] == "code"


def tests_if_code(wildcards):
    """The tests of a benchmark of code."""
    return f"{RESULTS}/items/{wildcards.benchmark}.tests.parquet" if is_code(wildcards) else []


def programs_if_code(wildcards):
    """A params function: how programs are run, for a benchmark of code."""
    return config["code"] if is_code(wildcards) else None


def grading_threads(wildcards):
    """Programs at a time; other answers are graded one by one."""
    return 4 if is_code(wildcards) else 1


def judge_of(wildcards):
    """The model entry of the judge, where it grades the benchmark of a job; else None."""
    grader = config["benchmarks"][wildcards.benchmark.removesuffix(study_config.REVISED)]["grader"]
    return config["judge"]["model"] if grader == "judge" else None


def graded_code_of(script):
    """A params function: the digest of the code behind a rule that grades, for the engine of its judge."""

    def code(wildcards):
        judge = judge_of(wildcards)
        return codedigest.digest(f"{workflow.basedir}/scripts/{script}", judge and judge["engine"])

    return code


def machine_of_judge(wildcards, threads):
    """A params function: where and how the judge runs; no reason to rerun, see machine_of."""
    judge = judge_of(wildcards)
    return judge["machine"] if judge else {}


def service_of_judge(wildcards, threads):
    """A params function: the service of the judge."""
    judge = judge_of(wildcards)
    return service("judge", judge) if judge else None


def env_of_grader(wildcards):
    """The conda environment of a job that grades: that of its judge's engine, where it has a judge."""
    judge = judge_of(wildcards)
    return env_of(judge) if judge else f"{workflow.basedir}/envs/analysis.yaml"


def gpus_of_grader(wildcards):
    """A resources function: the GPUs of a job that grades."""
    judge = judge_of(wildcards)
    return gpus_of(judge) if judge else 0


def batch_of_grader(wildcards):
    """A resources function: answers that a judge reads at once."""
    judge = judge_of(wildcards)
    return 64 if judge is None or judge["engine"] == "transformers" else 512


def reference_traces(wildcards):
    """Raw traces, replicate 0, of the reference arm of the first comparison: the runs that the controls take apart."""
    reference = config["comparisons"][0]["reference"]
    return f"{RESULTS}/raw/traces/{wildcards.model}/{wildcards.benchmark}/{reference}/r0.parquet"


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


def interruption_shards(folder):
    """The files of a stage of interruptions, one per model, benchmark, arm, replicate and intervention."""
    return [
        path
        for benchmark in interruption_config.benchmarks(config)
        for path in expand(
            f"{RESULTS}/{folder}/{SHARD}/{{intervention}}.parquet",
            model=MODELS,
            benchmark=benchmark,
            arm=interruption_config.arms(config),
            replicate=interruption_config.replicates(config, benchmark),
            intervention=interruption_config.interventions(config, benchmark),
        )
    ]


def interruption_base_traces():
    """Raw traces that interruptions start from or are held against."""
    return [
        path
        for base in interruption_config.bases(config)
        for path in expand(
            f"{RESULTS}/raw/traces/{SHARD}.parquet",
            model=MODELS,
            benchmark=base,
            arm=interruption_config.arms(config),
            replicate=interruption_config.replicates(config, base),
        )
    ]


def interrupted_traces(wildcards):
    """Raw traces that an intervention interrupts: on the question, or on the revised one before an update."""
    base = interruption_config.base(config, wildcards.benchmark, wildcards.intervention)
    return f"{RESULTS}/raw/traces/{wildcards.model}/{base}/{wildcards.arm}/r{wildcards.replicate}.parquet"


def interruption_tables():
    """Tables of estimates of interruptions, where the study has any."""
    return expand(f"{RESULTS}/decomposition/{{table}}.parquet", table=INTERRUPTION_TABLES) if INTERVENTIONS else []


def interruption_figures():
    """The folder with the figures of interruptions, where the study has any."""
    return f"{RESULTS}/figures/interruptions" if INTERVENTIONS else []


def decomposition_files():
    """Tables of estimates, by name."""
    return {table: f"{RESULTS}/decomposition/{table}.parquet" for table in TABLES}


def figure_files(*formats):
    """Figures of the study in these formats."""
    return expand(f"{RESULTS}/figures/{{figure}}.{{format}}", figure=catalogue.stems(study_config.figures_settings(config)), format=formats)


def text_table_files():
    """Decomposition tables for readers."""
    return expand(f"{RESULTS}/tables/{{table}}.{{format}}", table=TABLES, format=["csv", "tex"])


def report_templates():
    """The templates of the report."""
    folder = Path(workflow.basedir, "workflow/midtrace/report")
    return sorted(path for path in folder.iterdir() if path.suffix in (".j2", ".css"))


_served = [model for model in [*map(config["models"].get, MODELS), *([config["judge"]["model"]] if config["judge"] else [])] if is_served(model)]
_asked = sum(model["machine"].get("tensor_parallel_size", 1) for model in _served)
if 0 < devices.gpus() < _asked:
    sys.exit(
        f"midtrace: error: config: jobs.engines: service keeps the servers of all models at once, which takes {_asked} GPUs, and here are "
        f"{devices.gpus()}; allowed: per_model, or fewer models at a time (run.models)"
    )


# Of each stage of the engine: the folder of its tables, their settings, the script that makes one.
ENGINE_STAGES = {
    "traces": ("raw/traces", study_config.traces_settings, "generate_traces.py"),
    "probe": ("readouts", study_config.probe_settings, "probe_cuts.py"),
    "continuations": ("raw/continuations", study_config.continuation_settings, "continue_cuts.py"),
    "interruptions": ("raw/interruptions", interruption_config.interruption_settings, "interrupt_traces.py"),
}


@cache
def engine_tables(stage):
    """The tables of a stage of the engine, by (model, benchmark, arm, replicate) and, of interruptions, the intervention."""
    folder = ENGINE_STAGES[stage][0]
    if stage == "interruptions":
        paths = interruption_shards(folder)
    else:
        paths = shards(folder, CHOICE_BENCHMARKS if stage == "probe" else BENCHMARKS) + interruption_base_traces() * (stage == "traces")
    names = {path: path.removeprefix(f"{RESULTS}/{folder}/").removesuffix(".parquet").split("/") for path in paths}
    return {(*parts[:3], parts[3].removeprefix("r"), *parts[4:]): path for path, parts in names.items()}


@cache
def table_settings(stage, key):
    """The settings of a table."""
    return ENGINE_STAGES[stage][1](config, *key)


@cache
def table_identity(stage, key):
    """A digest of what decides a table: settings and code."""
    code = codedigest.digest(f"{workflow.basedir}/scripts/{ENGINE_STAGES[stage][2]}", config["models"][key[0]]["engine"])
    text = json.dumps([table_settings(stage, key), code], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def table_inputs(stage, key):
    """The files that a table is made from, by the names that its stage has for them."""
    model, benchmark, arm, replicate = key[:4]
    run = f"{arm}/r{replicate}.parquet"
    inputs = {"items": f"{RESULTS}/items/{benchmark}.parquet"}
    if stage == "interruptions":
        base = interruption_config.base(config, benchmark, key[4])
        inputs["traces"] = f"{RESULTS}/raw/traces/{model}/{base}/{run}"
    elif stage != "traces":
        inputs |= {"traces": f"{RESULTS}/raw/traces/{model}/{benchmark}/{run}", "cuts": f"{RESULTS}/cuts/{model}/{benchmark}/{run}"}
    return inputs


def shard_unit(stage):
    """What a job of item shards works for, as a path: all tables of a model, or one table."""
    return "{model}" if PER_MODEL else SHARD + "/{intervention}" * (stage == "interruptions")


def tables_of_unit(stage, wildcards):
    """The keys of the tables that a job of item shards works for."""
    return [key for key in engine_tables(stage) if key[0] == wildcards.model] if PER_MODEL else [tuple(wildcards)[:-1]]


@cache
def said(receipt):
    """What a receipt says is done: the tables, each with its identity."""
    try:
        return json.loads(Path(receipt).read_text())["tables"]
    except (OSError, ValueError, KeyError):
        return {}


def receipts_of(stage):
    """A params function: the receipts of the item shards of a table. It asks for ``threads`` as :func:`machine_of` does."""

    def receipts(wildcards, threads):
        unit = shard_unit(stage).format(**wildcards)
        return [f"{RESULTS}/shards/{stage}/{unit}/{shard}-of-{SHARDS}.json" for shard in range(SHARDS)] if SHARDED else []

    return receipts


def item_shards(stage):
    """An input function: the item shards that a table waits for; those whose receipt names the table as it is to be have nothing to do.

    If they stayed inputs, a change of one table of a model would write all others again.
    """
    receipts = receipts_of(stage)

    def waiting(wildcards):
        key = tuple(wildcards)
        return [receipt for receipt in receipts(wildcards, 1) if said(receipt).get(engine_tables(stage)[key]) != table_identity(stage, key)]

    return waiting


def shard_inputs(stage):
    """An input function: all that a job of item shards reads."""

    def inputs(wildcards):
        return list(dict.fromkeys(path for key in tables_of_unit(stage, wildcards) for path in table_inputs(stage, key).values()))

    return inputs


def shard_tables(stage):
    """A params function: the tables that a job of item shards works for, each with its identity."""

    def tables(wildcards):
        return {engine_tables(stage)[key]: table_identity(stage, key) for key in tables_of_unit(stage, wildcards)}

    return tables


def shard_jobs(stage):
    """A params function: (inputs, table, settings) of each. It asks for ``threads``, so Snakemake records the identities instead."""

    def jobs(wildcards, threads):
        return [(table_inputs(stage, key), engine_tables(stage)[key], table_settings(stage, key)) for key in tables_of_unit(stage, wildcards)]

    return jobs
