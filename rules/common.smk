# Paths and settings shared by all rules. No rule here.
import re
from pathlib import Path

from snakemake.iocontainers import InputFiles, Wildcards

from midtrace import devices, interruption_config, memory
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
# Whether jobs run on this machine, and not through the executor of a cluster or the cloud, which counts nodes.
HERE = not workflow.remote_exec and workflow.resource_settings.nodes is None
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
    make = getattr(module, f"{stage}_settings")

    def settings(wildcards):
        return make(config, *wildcards)

    return settings


def code_of(script):
    """A params function: the digest of the code behind a rule, for the engine of its model."""

    def code(wildcards):
        model = config["models"].get(wildcards.get("model"))
        return codedigest.digest(f"{workflow.basedir}/scripts/{script}", model and model["engine"])

    return code


def machine_of(wildcards, threads):
    """A params function: where and how the engine of a model runs. It asks for ``threads``, so Snakemake takes it for no reason to rerun."""
    return config["models"][wildcards.model]["machine"]


def env_of_engine(wildcards):
    """The conda environment that holds the engine of a model; a served model needs none of its own."""
    name = "vllm" if config["models"][wildcards.model]["engine"] == "vllm" else "transformers"
    return f"{workflow.basedir}/envs/{name}.yaml"


def gpus_of_engine(wildcards):
    """A resources function: the GPUs that a job of a model asks for; none where it runs here and there are none."""
    model = config["models"][wildcards.model]
    wanted = 0 if model["engine"] == "server" else model["machine"].get("tensor_parallel_size", 1)
    return min(devices.gpus(), wanted) if HERE else wanted


def memory_of_engine(wildcards, attempt):
    """A resources function: MB for the weights of a model and what works with them; more with every attempt."""
    return memory.request_mb(config["models"][wildcards.model], attempt)


def growing(minutes):
    """A resources function: minutes that a job may take on a cluster, as often as attempts."""

    def runtime(wildcards, attempt):
        return minutes * attempt

    return runtime


def check_resources():
    """Refuse a model that does not fit what the jobs of its engine ask for, profile and command line included."""
    judged = {"mem", "mem_mb", "mem_mb_per_cpu", "gpu", "_cores"}
    # `ruled`: the linter takes a loop over `rule` for a rule.
    for ruled in workflow.rules:
        if "machine" not in ruled.params.keys():
            continue
        for name in MODELS:
            wildcards, others = Wildcards(fromdict={"model": name}), set(ruled.resources) - judged
            asked = ruled.expand_resources(wildcards, InputFiles(), attempt=1, skip_evaluation=others)
            memory.check_job(ruled.name, name, config["models"][name], dict(asked.items()), asked["_cores"])


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
