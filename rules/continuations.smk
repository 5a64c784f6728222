"""Continuations: what the model writes after a cut, to check the probe.

continue_cuts (paid: the engine) makes raw/continuations/.../r{replicate}.parquet.
grade_continuations (free, unless a judge grades) makes continuations/.../r{replicate}.parquet: key (trace_id, cut_id, context, context_arm,
mode); answer, correct, agrees_with_probe.
"""


rule continuations:
    input:
        rules.probe.input,
        shards("raw/continuations"),
        shards("continuations"),


rule continue_cuts:
    input:
        item_table=rules.sample_items.output[0],
        traces=rules.generate_traces.output[0],
        cuts=rules.cut_traces.output[0],
        shards=item_shards("continuations"),
    output:
        f"{RESULTS}/raw/continuations/{SHARD}.parquet",
    log:
        f"{LOGS}/continue_cuts/{SHARD}.log",
    benchmark:
        f"{RESULTS}/benchmarks/continue_cuts/{SHARD}.jsonl"
    conda:
        env_of_engine
    resources:
        gpu=gpus_of_table,
        mem_mb=memory_of_table,
        runtime=growing(30 if SHARDED else 240),
        batch=batch_of(64, 128),
    params:
        study=config["study"],
        settings=settings_of("continuation"),
        receipts=receipts_of("continuations"),
        machine=machine_of,
        service=service_of,
        code=code_of("continue_cuts.py"),
    message:
        f"continue_cuts {JOB}"
    script:
        "../scripts/continue_cuts.py"


rule grade_continuations:
    input:
        item_table=rules.sample_items.output[0],
        traces=rules.grade_traces.output[0],
        cuts=rules.cut_traces.output[0],
        raw=rules.continue_cuts.output[0],
        readouts=readouts_if_choice,
        tests=tests_if_code,
    output:
        f"{RESULTS}/continuations/{SHARD}.parquet",
    log:
        f"{LOGS}/grade_continuations/{SHARD}.log",
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
        settings=settings_of("graded_continuation"),
        programs=programs_if_code,
        machine=machine_of_judge,
        service=service_of_judge,
        code=graded_code_of("grade_continuations.py"),
    message:
        f"grade_continuations {JOB}"
    script:
        "../scripts/grade_continuations.py"
