"""Traces: one generation per item, arm and replicate.

generate_traces (paid: the engine) makes raw/traces/.../r{replicate}.parquet: ids as sampled, split by ids; key trace_id.
grade_traces (free, unless a judge grades) makes traces/.../r{replicate}.parquet: the same rows with the parsed answer and whether it is right.
"""


rule traces:
    input:
        rules.items.input,
        shards("raw/traces"),
        shards("traces"),


rule generate_traces:
    input:
        item_table=rules.sample_items.output[0],
        shards=item_shards("traces"),
    output:
        f"{RESULTS}/raw/traces/{SHARD}.parquet",
    log:
        f"{LOGS}/generate_traces/{SHARD}.log",
    benchmark:
        f"{RESULTS}/benchmarks/generate_traces/{SHARD}.jsonl"
    conda:
        env_of_engine
    resources:
        gpu=gpus_of_table,
        mem_mb=memory_of_table,
        runtime=growing(30 if SHARDED else 720),
        batch=batch_of(128, 512),
    params:
        study=config["study"],
        settings=settings_of("traces"),
        receipts=receipts_of("traces"),
        machine=machine_of,
        service=service_of,
        code=code_of("generate_traces.py"),
    message:
        f"generate_traces {JOB}"
    script:
        "../scripts/generate_traces.py"


rule grade_traces:
    input:
        raw=rules.generate_traces.output[0],
        item_table=rules.sample_items.output[0],
        tests=tests_if_code,
    output:
        f"{RESULTS}/traces/{SHARD}.parquet",
    log:
        f"{LOGS}/grade_traces/{SHARD}.log",
    conda:
        env_of_grader
    threads: grading_threads
    resources:
        gpu=gpus_of_grader,
        mem_mb=memory_of_grader,
        runtime=runtime_of_grader,
        batch=batch_of_grader,
    params:
        study=config["study"],
        settings=settings_of("graded_traces"),
        programs=programs_if_code,
        machine=machine_of_judge,
        service=service_of_judge,
        code=graded_code_of("grade_traces.py"),
    message:
        f"grade_traces {JOB}"
    script:
        "../scripts/grade_traces.py"
