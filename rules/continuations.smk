"""Continuations: what the model writes after a cut, to check the probe.

continue_cuts (paid: the engine) makes raw/continuations/.../r{replicate}.parquet.
grade_continuations (free) makes continuations/.../r{replicate}.parquet: key (trace_id, cut_id, context, context_arm, mode); answer,
correct, agrees_with_probe.
"""


rule continuations:
    input:
        shards("continuations"),


rule continue_cuts:
    input:
        item_table=RESULTS + "/items/{benchmark}.parquet",
        traces=rules.generate_traces.output[0],
        cuts=rules.cut_traces.output[0],
    output:
        RESULTS + f"/raw/continuations/{SHARD}.parquet",
    params:
        study=config["study"],
        settings=settings_of("continuation"),
        code=code_of("continue_cuts.py"),
    resources:
        gpu=GPU,
        batch=64,
    log:
        f"logs/{config['study']}/continue_cuts/{SHARD}.log",
    benchmark:
        f"{RESULTS}/benchmarks/continue_cuts/{SHARD}.jsonl"
    conda:
        "../envs/transformers.yaml"
    script:
        "../scripts/continue_cuts.py"


rule grade_continuations:
    input:
        item_table=RESULTS + "/items/{benchmark}.parquet",
        traces=rules.grade_traces.output[0],
        cuts=rules.cut_traces.output[0],
        raw=rules.continue_cuts.output[0],
        readouts=readouts_if_choice,
    output:
        RESULTS + f"/continuations/{SHARD}.parquet",
    params:
        study=config["study"],
        settings=settings_of("continuation"),
        code=code_of("grade_continuations.py"),
    log:
        f"logs/{config['study']}/grade_continuations/{SHARD}.log",
    conda:
        "../envs/analysis.yaml"
    script:
        "../scripts/grade_continuations.py"
