# What jobs of a model ask for: where its engine runs, its environment, GPUs, memory, time and batch. No rule here.
import os

from snakemake.iocontainers import InputFiles, Wildcards

from midtrace import devices, memory, serving

# Whether jobs run on this machine, and not through the executor of a cluster or the cloud, which counts nodes.
HERE = not workflow.remote_exec and workflow.resource_settings.nodes is None
GPUS = devices.gpus()


@no_reason_to_rerun
def machine_of(wildcards):
    """A params function: where and how the engine of a model runs."""
    return config["models"][wildcards.model]["machine"]


def is_served(model):
    """Whether the jobs of a run share a server of a model entry."""
    return config["jobs"]["engines"] == "service" and model["engine"] == "vllm"


def service(name, model):
    """Where a model is served for the time of this run, as :func:`midtrace.serving.reach` takes it; None for one that jobs load."""
    if not is_served(model):
        return None
    return {"address": f"{RESULTS}/servers/{name}.json", "log": f"{LOGS}/servers/{name}.log", "owner": serving.process(os.getpid())}


@no_reason_to_rerun
def service_of(wildcards):
    """A params function: the service of a model."""
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
