"""Controls: constructed prefixes read by the same probe, to know that it reads what stands there.

Makes controls/{model}/{benchmark}.parquet: key (model, item_id, control, position); stated, choice, follows, correct.
"""


rule read_controls:
    input:
        item_table=rules.sample_items.output[0],
        traces=reference_traces,
    output:
        f"{RESULTS}/controls/{{model}}/{{benchmark}}.parquet",
    log:
        f"{LOGS}/read_controls/{{model}}/{{benchmark}}.log",
    conda:
        env_of_engine
    resources:
        gpu=gpus_of_engine,
        mem_mb=memory_of_engine,
        runtime=growing(120),
    params:
        study=config["study"],
        settings=settings_of("controls"),
        machine=machine_of,
        service=service_of,
        code=code_of("read_controls.py"),
    message:
        "read_controls {wildcards.model}/{wildcards.benchmark}"
    script:
        "../scripts/read_controls.py"
