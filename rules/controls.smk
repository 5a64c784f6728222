"""Controls: constructed prefixes read by the same probe, to know that it reads what stands there.

Makes controls/{model}/{benchmark}.parquet: key (model, item_id, control, position); stated, choice, follows, correct.
"""


rule read_controls:
    input:
        item_table=RESULTS + "/items/{benchmark}.parquet",
        traces=reference_traces,
    output:
        RESULTS + "/controls/{model}/{benchmark}.parquet",
    params:
        study=config["study"],
        settings=settings_of("controls"),
        code=code_of("read_controls.py"),
    resources:
        gpu=GPU,
    log:
        f"logs/{config['study']}/read_controls/{{model}}/{{benchmark}}.log",
    conda:
        "../envs/transformers.yaml"
    script:
        "../scripts/read_controls.py"
