"""Decomposition: outcomes by trace, horizon and readout, and the tables of estimates.

Makes outcomes.parquet (key: model, benchmark, arm, item_id, replicate, horizon, readout, context_arm) and decomposition/*.parquet (one row per
estimate: model, benchmark, treatment, reference, estimand, horizon, readout, estimate, ci_low, ci_high, n_items, n_pairs, method).
"""


rule decomposition:
    input:
        rules.continuations.input,
        control_files(),
        f"{RESULTS}/outcomes.parquet",
        expand(f"{RESULTS}/decomposition/{{table}}.parquet", table=TABLES),
        rules.interruptions.input,
        interruption_tables(),


rule tabulate_outcomes:
    input:
        **stage_files(),
    output:
        f"{RESULTS}/outcomes.parquet",
    log:
        f"{LOGS}/tabulate_outcomes.log",
    conda:
        "../envs/analysis.yaml"
    params:
        study=config["study"],
        settings=settings_of("outcomes"),
        code=code_of("tabulate_outcomes.py"),
    message:
        "tabulate_outcomes"
    script:
        "../scripts/tabulate_outcomes.py"


rule decompose:
    input:
        **stage_files(),
        outcomes=rules.tabulate_outcomes.output[0],
        controls=control_files(),
        interruptions=interruption_tables(),
    output:
        **{table: f"{RESULTS}/decomposition/{table}.parquet" for table in TABLES},
    log:
        f"{LOGS}/decompose.log",
    conda:
        "../envs/analysis.yaml"
    params:
        study=config["study"],
        settings=settings_of("analysis"),
        interruptions=interruption_tables(),
        planted=config["planted"],
        code=code_of("decompose.py"),
    message:
        "decompose"
    script:
        "../scripts/decompose.py"
