"""Probe: the forced-answer readout of every cut in every context, for benchmarks with options.

Makes readouts/.../r{replicate}.parquet: one row per cut and context; key (trace_id, cut_id, context, context_arm); option_logprob,
candidate_mass, choice, q_gold, correct, brier, log_loss, gold_log_odds.
"""


rule probe:
    input:
        rules.replay.input,
        shards("readouts", CHOICE_BENCHMARKS),


rule probe_cuts:
    input:
        item_table=rules.sample_items.output[0],
        traces=rules.generate_traces.output[0],
        cuts=rules.cut_traces.output[0],
        shards=item_shards("probe"),
    output:
        f"{RESULTS}/readouts/{SHARD}.parquet",
    log:
        f"{LOGS}/probe_cuts/{SHARD}.log",
    benchmark:
        f"{RESULTS}/benchmarks/probe_cuts/{SHARD}.jsonl"
    conda:
        env_of_engine
    resources:
        gpu=gpus_of_table,
        mem_mb=memory_of_table,
        runtime=growing(30 if SHARDED else 240),
        batch=batch_of(64, 128),
    params:
        study=config["study"],
        settings=settings_of("probe"),
        receipts=receipts_of("probe"),
        machine=machine_of,
        service=service_of,
        code=code_of("probe_cuts.py"),
    message:
        f"probe_cuts {JOB}"
    script:
        "../scripts/probe_cuts.py"
