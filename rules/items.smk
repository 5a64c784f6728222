"""Items: load or generate, leave out what cannot be used, draw.

Makes items/{benchmark}.parquet: one row per item; key item_id; question, options, answer, stratum.
Beside it: {benchmark}.excluded.parquet, the rows of the source that are no items, with reasons; {benchmark}.tests.parquet, the tests of code items.
"""


rule items:
    input:
        expand(f"{RESULTS}/items/{{benchmark}}.parquet", benchmark=BENCHMARKS),


rule sample_items:
    output:
        item_table=f"{RESULTS}/items/{{benchmark}}.parquet",
        excluded=f"{RESULTS}/items/{{benchmark}}.excluded.parquet",
        tests=f"{RESULTS}/items/{{benchmark}}.tests.parquet",
    log:
        f"{LOGS}/sample_items/{{benchmark}}.log",
    localrule: True
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
