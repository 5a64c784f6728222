"""Traces: one generation per item, arm and replicate.

generate_traces (paid: the engine) makes raw/traces/.../r{replicate}.parquet: ids as sampled, split by ids; key trace_id.
grade_traces (free) makes traces/.../r{replicate}.parquet: the same rows with the parsed answer and whether it is right.
"""


rule traces:
    input:
        shards("traces"),


rule generate_traces:
    input:
        item_table=RESULTS + "/items/{benchmark}.parquet",
    output:
        RESULTS + f"/raw/traces/{SHARD}.parquet",
    params:
        study=config["study"],
        settings=settings_of("traces"),
        code=code_of("generate_traces.py"),
    resources:
        gpu=GPU,
        batch=128,
    log:
        f"logs/{config['study']}/generate_traces/{SHARD}.log",
    benchmark:
        f"{RESULTS}/benchmarks/generate_traces/{SHARD}.jsonl"
    conda:
        "../envs/transformers.yaml"
    script:
        "../scripts/generate_traces.py"


rule grade_traces:
    input:
        raw=rules.generate_traces.output[0],
        item_table=RESULTS + "/items/{benchmark}.parquet",
    output:
        RESULTS + f"/traces/{SHARD}.parquet",
    params:
        study=config["study"],
        settings=settings_of("traces"),
        code=code_of("grade_traces.py"),
    log:
        f"logs/{config['study']}/grade_traces/{SHARD}.log",
    conda:
        "../envs/analysis.yaml"
    script:
        "../scripts/grade_traces.py"
