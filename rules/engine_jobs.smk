# Jobs that need a model: where it runs, what they ask for, and how the work is cut into jobs. No rule here.
import hashlib
import json
import os

from snakemake.iocontainers import InputFiles, Wildcards

from midtrace import devices, memory, serving, vocabulary

SHARDS = config["jobs"]["shards"]
PER_MODEL = config["jobs"]["engines"] == "per_model"
SHARDED = SHARDS > 1 or PER_MODEL  # whether jobs of their own do the engine's work
# Whether jobs run on this machine, and not through the executor of a cluster or the cloud, which counts nodes.
HERE = not workflow.remote_exec and workflow.resource_settings.nodes is None
GPUS = devices.gpus()


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
    """The conda environment that holds the engine of a model entry; a job that asks a running server needs a vocabulary only."""
    return f"{workflow.basedir}/envs/{'vllm' if model['engine'] == 'vllm' else 'transformers'}.yaml"


def env_of_engine(wildcards):
    """The conda environment of a job of a model."""
    return env_of(config["models"][wildcards.model])


def gpus_of(model):
    """The GPUs that a job of a model entry asks for; none where the model is on a server, or the job runs here and there are none."""
    wanted = 0 if model["engine"] == "server" or is_served(model) else model["machine"].get("tensor_parallel_size", 1)
    return min(GPUS, wanted) if HERE else wanted


def gpus_of_engine(wildcards):
    """A resources function: the GPUs of a job of a model."""
    return gpus_of(config["models"][wildcards.model])


def gpus_of_table(wildcards):
    """A resources function: the GPUs of a job that writes a table of the engine; none where item shards have done the engine's work."""
    return 0 if SHARDED else gpus_of_engine(wildcards)


def memory_of(model, attempt):
    """MB for the weights of a model entry and what works with them; more with every attempt."""
    return memory.CLIENT * attempt if is_served(model) else memory.request_mb(model, attempt)


def memory_of_engine(wildcards, attempt):
    """A resources function: MB of a job of a model."""
    return memory_of(config["models"][wildcards.model], attempt)


def memory_of_table(wildcards, attempt):
    """A resources function: MB of a job that writes a table of the engine."""
    return memory.CLIENT * attempt if SHARDED else memory_of_engine(wildcards, attempt)


def growing(minutes):
    """A resources function: minutes that a job may take on a cluster, as often as attempts."""

    def runtime(wildcards, attempt):
        return minutes * attempt

    return runtime


def batch_of(few, many):
    """A resources function: Transformers pads what runs together, so ``few``; vLLM and a server schedule for themselves and want ``many``."""

    def batch(wildcards):
        return few if config["models"][wildcards.model]["engine"] == "transformers" else many

    return batch


def judge_of(wildcards):
    """The model entry of the judge, where it grades the benchmark of a job; else None."""
    grader = config["benchmarks"][wildcards.benchmark.removesuffix(study_config.REVISED)]["grader"]
    return config["judge"]["model"] if grader == "judge" else None


def graded_code_of(script):
    """A params function: the digest of the code behind a rule that grades, for the engine of its judge."""

    def code(wildcards):
        judge = judge_of(wildcards)
        return code_digest(script, judge and judge["engine"])

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


def memory_of_grader(wildcards, attempt):
    """A resources function: MB of a job that grades."""
    judge = judge_of(wildcards)
    return memory_of(judge, attempt) if judge else memory.CLIENT * attempt


def runtime_of_grader(wildcards, attempt):
    """A resources function: minutes of a job that grades."""
    return (240 if judge_of(wildcards) else 30) * attempt


def batch_of_grader(wildcards):
    """A resources function: answers that a judge reads at once."""
    judge = judge_of(wildcards)
    return 64 if judge is None or judge["engine"] == "transformers" else 512


def loads(ruled):
    """What the jobs of a rule load, as (wildcards, place in the config, model entry). Nothing where a server or item shards do."""
    if "machine" not in ruled.params.keys() or (SHARDED and "receipts" in ruled.params.keys()):
        return []
    if "programs" in ruled.params.keys():  # it grades
        graded = dict.fromkeys([*BENCHMARKS, *interruption_config.benchmarks(config)])
        judged = [{"benchmark": name} for name in graded if config["benchmarks"][name]["grader"] == "judge"]
        found = [(wildcards, "judge.model", config["judge"]["model"]) for wildcards in judged]
    else:
        found = [({"model": name}, f"models.{name}", config["models"][name]) for name in MODELS]
    return [entry for entry in found if not is_served(entry[2])]


def check_resources():
    """Refuse a model that does not fit what the jobs of its engine ask for, profile and command line included; and more servers than GPUs."""
    judged = {"mem", "mem_mb", "mem_mb_per_cpu", "gpu", "_cores"}
    # `ruled`: the linter takes a loop over `rule` for a rule.
    for ruled in workflow.rules:
        for wildcards, entry, model in loads(ruled):
            others = set(ruled.resources) - judged
            asked = ruled.expand_resources(Wildcards(fromdict=wildcards), InputFiles(), attempt=1, skip_evaluation=others)
            memory.check_job(ruled.name, entry, model, dict(asked.items()), asked["_cores"])
    models = [config["models"][name] for name in MODELS] + ([config["judge"]["model"]] if config["judge"] else [])
    wanted = sum(model["machine"].get("tensor_parallel_size", 1) for model in models if is_served(model))
    if wanted and not HERE:
        raise InputError("config", "jobs.engines", "is service, whose servers run on this machine, and the jobs elsewhere", ("per_model", "per_job"))
    if 0 < GPUS < wanted:
        problem = f"is service, whose servers take {wanted} GPUs at once, and here are {GPUS}"
        raise InputError("config", "jobs.engines", problem, "per_model, or fewer models at a time (run.models)")


def check_judge(jobs):
    """Refuse a judge whose commit is not chosen before the first job of a run that comes to it: hours later would be late."""
    judges = (judge_of(job.wildcards) for job in jobs if "programs" in job.rule.params.keys())  # it grades
    judge = next((judge for judge in judges if judge), None)
    if judge:
        vocabulary.require_commit(judge)


# Of each stage of the engine: the folder of its tables, their settings, the script that makes one.
ENGINE_STAGES = {
    "traces": ("raw/traces", made_settings("traces"), "generate_traces.py"),
    "probe": ("readouts", made_settings("probe"), "probe_cuts.py"),
    "continuations": ("raw/continuations", made_settings("continuation"), "continue_cuts.py"),
    "interruptions": ("raw/interruptions", made_settings("interruption", interruption_config), "interrupt_traces.py"),
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


def table_settings(stage, key):
    """The settings of a table."""
    return ENGINE_STAGES[stage][1](*key)


@cache
def table_identity(stage, key):
    """A digest of what decides a table: settings and code."""
    code = code_digest(ENGINE_STAGES[stage][2], config["models"][key[0]]["engine"])
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
    if PER_MODEL:
        return "{model}"
    return f"{SHARD}/{{intervention}}" if stage == "interruptions" else SHARD


def tables_of_unit(stage, wildcards):
    """The keys of the tables that a job of item shards works for."""
    return [key for key in engine_tables(stage) if key[0] == wildcards.model] if PER_MODEL else [tuple(wildcards)[:-1]]


@cache
def said(receipt):
    """What a receipt says is done: the tables, each with its identity."""
    try:
        return dict(json.loads(Path(receipt).read_text())["tables"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def receipts_of(stage):
    """A params function: the receipts of the item shards of a table. It asks for ``threads`` as :func:`machine_of` does."""

    def receipts(wildcards, threads):
        unit = shard_unit(stage).format(**wildcards)
        return [f"{RESULTS}/shards/{stage}/{unit}/{shard}-of-{SHARDS}.json" for shard in range(1, SHARDS + 1)] if SHARDED else []

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
