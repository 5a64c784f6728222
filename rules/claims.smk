"""Claims: the headline estimates of the study, machine-readable.

Makes claims.json from decomposition/*.parquet: each claim with estimate, interval, n, readout, method and the file it came from.
"""


rule claims:
    input:
        f"{RESULTS}/claims.json",


rule write_claims:
    input:
        **{table: f"{RESULTS}/decomposition/{table}.parquet" for table in TABLES},
    output:
        f"{RESULTS}/claims.json",
    log:
        f"{LOGS}/write_claims.log",
    conda:
        "../envs/analysis.yaml"
    params:
        study=config["study"],
        settings=settings_of("analysis"),
        code=code_of("write_claims.py"),
    message:
        "write_claims"
    script:
        "../scripts/write_claims.py"
