"""Interruptions: cut a finished trace, insert something, let the model go on (docs/interruptions.md).

interrupt_traces (paid: the engine) makes raw/interruptions/.../r{replicate}/{intervention}.parquet: key (trace_id, cut_id, intervention); what
was inserted and where, what followed, split by ids.
grade_interruptions (free, unless a judge grades) makes interruptions/.../{intervention}.parquet: the same rows with answer, correct,
leakage_ratio, panic, self_doubt.
estimate_interruptions makes decomposition/interruptions*.parquet: one row per estimate.
Runs on revised questions are traces of the benchmark {benchmark}+revised, made by the rules of items and traces.
"""


rule interruptions:
    input:
        interruption_base_traces(),
        interruption_shards("raw/interruptions"),
        interruption_shards("interruptions"),
    message:
        f"interruptions are there: {RESULTS}/interruptions"


rule interrupt_traces:
    input:
        item_table=rules.sample_items.output[0],
        traces=interrupted_traces,
        shards=item_shards("interruptions"),
    output:
        f"{RESULTS}/raw/interruptions/{SHARD}/{{intervention}}.parquet",
    log:
        f"{LOGS}/interrupt_traces/{SHARD}/{{intervention}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/interrupt_traces/{SHARD}/{{intervention}}.jsonl"
    conda:
        env_of_engine
    resources:
        gpu=gpus_of_table,
        mem_mb=memory_of_table,
        runtime=growing(30 if SHARDED else 240),
        batch=batch_of(32, 128),
    params:
        study=config["study"],
        settings=settings_of("interruption", interruption_config),
        receipts=receipts_of("interruptions"),
        machine=machine_of,
        service=service_of,
        code=code_of("interrupt_traces.py"),
    message:
        f"interrupt_traces {JOB}/{{wildcards.intervention}}"
    script:
        "../scripts/interrupt_traces.py"


rule grade_interruptions:
    input:
        item_table=rules.sample_items.output[0],
        fresh=rules.grade_traces.output[0],
        traces=interrupted_traces,
        raw=rules.interrupt_traces.output[0],
        tests=tests_if_code,
    output:
        f"{RESULTS}/interruptions/{SHARD}/{{intervention}}.parquet",
    log:
        f"{LOGS}/grade_interruptions/{SHARD}/{{intervention}}.log",
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
        settings=settings_of("interruption_grading", interruption_config),
        programs=programs_if_code,
        machine=machine_of_judge,
        service=service_of_judge,
        code=graded_code_of("grade_interruptions.py"),
    message:
        f"grade_interruptions {JOB}/{{wildcards.intervention}}"
    script:
        "../scripts/grade_interruptions.py"


rule estimate_interruptions:
    input:
        shards=interruption_shards("interruptions"),
        traces=interruption_base_traces(),
        item_tables=expand(f"{RESULTS}/items/{{benchmark}}.parquet", benchmark=interruption_config.benchmarks(config)),
    output:
        **{table: f"{RESULTS}/decomposition/{table}.parquet" for table in INTERRUPTION_TABLES},
    log:
        f"{LOGS}/estimate_interruptions.log",
    conda:
        "../envs/analysis.yaml"
    params:
        study=config["study"],
        settings=settings_of("interruption_analysis", interruption_config),
        code=code_of("estimate_interruptions.py"),
    message:
        "estimate_interruptions"
    script:
        "../scripts/estimate_interruptions.py"


rule draw_interruptions:
    input:
        **{table: f"{RESULTS}/decomposition/{table}.parquet" for table in FIGURE_TABLES},
    output:
        folder=directory(f"{RESULTS}/figures/interruptions"),
        index=f"{RESULTS}/figures/interruptions.json",
    log:
        f"{LOGS}/draw_interruptions.log",
    conda:
        "../envs/analysis.yaml"
    params:
        settings=settings_of("interruption_analysis", interruption_config),
        code=code_of("draw_interruptions.py"),
    message:
        "draw_interruptions"
    script:
        "../scripts/draw_interruptions.py"
