# How the work of an engine is cut into jobs: item shards, their receipts, and the tables that they work for (docs/jobs.md). No rule here.
import hashlib
import json

SHARDS = config["jobs"]["shards"]
PER_MODEL = config["jobs"]["engines"] == "per_model"
SHARDED = SHARDS > 1 or PER_MODEL  # whether jobs of their own do the engine's work
# Of each stage of the engine: the folder of its tables, their settings, the script that makes one.
ENGINE_STAGES = {
    "traces": ("raw/traces", made_settings("traces"), "generate_traces.py"),
    "probe": ("readouts", made_settings("probe"), "probe_cuts.py"),
    "continuations": ("raw/continuations", made_settings("continuation"), "continue_cuts.py"),
    "interruptions": ("raw/interruptions", made_settings("interruption", interruption_config), "interrupt_traces.py"),
}


def table_of(stage, key):
    """The file of a table of the engine."""
    return key.path(f"{RESULTS}/{ENGINE_STAGES[stage][0]}")


def table_settings(stage, key):
    """The settings of a table."""
    return ENGINE_STAGES[stage][1](*key)


@cache
def table_identity(stage, key):
    """A digest of what decides a table: settings and code."""
    code = code_digest(ENGINE_STAGES[stage][2], config["models"][key.model]["engine"])
    text = json.dumps([table_settings(stage, key), code], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def table_inputs(stage, key):
    """The files that a table is made from, by the names that its stage has for them."""
    inputs = {"items": f"{RESULTS}/items/{key.benchmark}.parquet"}
    if stage == "interruptions":
        inputs["traces"] = interrupted_key(key).path(f"{RESULTS}/raw/traces")
    elif stage != "traces":
        inputs |= {"traces": key.path(f"{RESULTS}/raw/traces"), "cuts": key.path(f"{RESULTS}/cuts")}
    return inputs


@cache
def keys_of_model(stage, model):
    """The keys of all tables of a stage that the engine of a model works for."""
    if stage == "interruptions":
        keys = interruption_keys()
    else:
        keys = run_keys(CHOICE_BENCHMARKS if stage == "probe" else BENCHMARKS) + interruption_base_keys() * (stage == "traces")
    return [key for key in dict.fromkeys(keys) if key.model == model]


def keys_of_unit(stage, wildcards):
    """The keys of the tables that a job of item shards works for."""
    return keys_of_model(stage, wildcards.model) if PER_MODEL else [key_of(wildcards)]


def shard_unit(stage):
    """What a job of item shards works for, as a path: all tables of a model, or one table."""
    if PER_MODEL:
        return "{model}"
    return f"{SHARD}/{{intervention}}" if stage == "interruptions" else SHARD


@cache
def tables_done(receipt):
    """What a receipt says is done: the tables, each with its identity."""
    try:
        return dict(json.loads(Path(receipt).read_text(encoding="utf-8"))["tables"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def receipts(stage, wildcards):
    """The receipts of the item shards of a table; none where its own job asks the engine."""
    unit = shard_unit(stage).format(**wildcards)
    return [f"{RESULTS}/shards/{stage}/{unit}/{shard}-of-{SHARDS}.json" for shard in range(1, SHARDS + 1)] if SHARDED else []


def receipts_of(stage):
    """A params function: the receipts of the item shards of a table."""
    return no_reason_to_rerun(partial(receipts, stage))


def item_shards(stage):
    """An input function: the item shards that a table waits for; those whose receipt names the table as it is to be have nothing to do.

    If they stayed inputs, a change of one table of a model would write all others again.
    """

    def waiting(wildcards):
        key = key_of(wildcards)
        return [receipt for receipt in receipts(stage, wildcards) if tables_done(receipt).get(table_of(stage, key)) != table_identity(stage, key)]

    return waiting


def shard_inputs(stage):
    """An input function: all that a job of item shards reads."""

    def inputs(wildcards):
        return list(dict.fromkeys(path for key in keys_of_unit(stage, wildcards) for path in table_inputs(stage, key).values()))

    return inputs


def shard_tables(stage):
    """A params function: the tables that a job of item shards works for, each with its identity."""

    def tables(wildcards):
        return {table_of(stage, key): table_identity(stage, key) for key in keys_of_unit(stage, wildcards)}

    return tables


def shard_jobs(stage):
    """A params function: (inputs, table, settings) of each table. Its identity, in :func:`shard_tables`, is what decides a rerun."""

    def jobs(wildcards):
        return [(table_inputs(stage, key), table_of(stage, key), table_settings(stage, key)) for key in keys_of_unit(stage, wildcards)]

    return no_reason_to_rerun(jobs)
