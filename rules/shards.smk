"""Item shards: jobs that do the engine's work for a part of the items, of one table or of all tables of a model (config: jobs).

{stage}_shard (paid: the engine) makes shards/{stage}/.../{shard}-of-{shards}.json, a receipt: what the engine computed is kept beside the table,
whose own rule then writes it without an engine.
"""

for stage in ENGINE_STAGES if SHARDED else ():

    rule:
        name:
            f"{stage}_shard"
        input:
            shard_inputs(stage),
        output:
            # Updated: an interrupted job leaves the old receipt, which is right for the tables that have not changed.
            update(f"{RESULTS}/shards/{stage}/{shard_unit(stage)}/{{shard}}-of-{SHARDS}.json"),
        log:
            f"{LOGS}/{stage}_shard/{shard_unit(stage)}/{{shard}}-of-{SHARDS}.log",
        benchmark:
            f"{RESULTS}/benchmarks/{stage}_shard/{shard_unit(stage)}/{{shard}}-of-{SHARDS}.jsonl"
        conda:
            env_of_engine
        resources:
            gpu=gpus_of_engine,
            mem_mb=memory_of_engine,
            runtime=growing(720 if stage == "traces" else 240),
            batch=batch_of(64, 512),
        params:
            stage=stage,
            shards=SHARDS,
            tables=shard_tables(stage),
            jobs=shard_jobs(stage),
            machine=machine_of,
            service=service_of,
        message:
            f"{stage}_shard {shard_unit(stage).replace('{', '{wildcards.')} {{wildcards.shard}} of {SHARDS}"
        script:
            "../scripts/work_shard.py"
