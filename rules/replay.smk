"""Replay: where each trace is cut (fixed horizons, matched horizons, fractions).

Makes cuts/.../r{replicate}.parquet: one row per trace and cut; key (trace_id, cut_id); n_tokens, complete, drift.
"""


rule replay:
    input:
        rules.traces.input,
        shards("cuts"),


rule cut_traces:
    input:
        traces=rules.generate_traces.output[0],
        partners=partner_traces,
    output:
        f"{RESULTS}/cuts/{SHARD}.parquet",
    log:
        f"{LOGS}/cut_traces/{SHARD}.log",
    conda:
        "../envs/analysis.yaml"
    params:
        study=config["study"],
        settings=settings_of("replay"),
        code=code_of("cut_traces.py"),
    message:
        f"cut_traces {JOB}"
    script:
        "../scripts/cut_traces.py"
