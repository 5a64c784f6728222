"""Items: load or generate, check, draw.

Makes items/{benchmark}.parquet: one row per item; key item_id; question, options, answer, stratum.
"""


rule items:
    input:
        expand(RESULTS + "/items/{benchmark}.parquet", benchmark=BENCHMARKS),


rule sample_items:
    output:
        RESULTS + "/items/{benchmark}.parquet",
    params:
        study=config["study"],
        settings=settings_of("items"),
        code=code_of("sample_items.py"),
    log:
        "logs/" + config["study"] + "/sample_items/{benchmark}.log",
    conda:
        "../envs/analysis.yaml"
    script:
        "../scripts/sample_items.py"
