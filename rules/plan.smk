"""Plan: what the study will take. Prints rows, tokens, disk and hours; makes no file and needs no GPU, weights or network."""


rule plan:
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
