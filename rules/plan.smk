"""Plan: what the study will take. Prints rows, tokens, disk and hours; writes nothing but its log and needs no GPU, weights or network."""


rule plan:
    log:
        f"{LOGS}/plan.log",
    localrule: True
    conda:
        "../envs/analysis.yaml"
    params:
        config=config,
        results=RESULTS,
    message:
        f"plan of {config['study']}"
    script:
        "../scripts/plan.py"
