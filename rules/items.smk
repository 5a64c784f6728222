"""Items: load or generate, check, draw.

Makes items/{benchmark}.parquet: one row per item; key item_id; question, options, answer, stratum.
"""


rule items:
    input:
        expand(f"{RESULTS}/items/{{benchmark}}.parquet", benchmark=BENCHMARKS),


rule sample_items:
    output:
        f"{RESULTS}/items/{{benchmark}}.parquet",
    log:
        f"{LOGS}/sample_items/{{benchmark}}.log",
    conda:
        "../envs/analysis.yaml"
    params:
        study=config["study"],
        settings=settings_of("items"),
        code=code_of("sample_items.py"),
    message:
        "sample_items {wildcards.benchmark}"
    script:
        "../scripts/sample_items.py"
