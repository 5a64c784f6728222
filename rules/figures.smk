"""Figures and tables for readers.

Makes figures/{question}_{model}_{benchmark}.{svg,pdf,png} (planted.* for the whole study; figures/interruptions/ for interruptions, listed in figures/interruptions.json) and tables/{table}.{csv,tex}, one per table of
decomposition/, and those that papers print (completed_block_agreement, generated_answer_check, termination_strata): all columns in full in .csv,
rounded in .tex.
"""


rule figures:
    input:
        rules.decomposition.input,
        figure_files("svg", "pdf", "png"),
        text_table_files(),
        interruption_figures(),
        f"{RESULTS}/figures/interruptions" if INTERVENTIONS else [],


rule draw_figures:
    input:
        **decomposition_files(),
        item_tables=stage_files()["item_tables"],
        traces=shards("traces"),
    output:
        figures=figure_files("pdf", "png"),
        vector=report(figure_files("svg"), caption="../workflow/report/figures.rst", category="Figures"),
        text_tables=report(text_table_files(), caption="../workflow/report/tables.rst", category="Tables"),
    log:
        f"{LOGS}/draw_figures.log",
    conda:
        "../envs/analysis.yaml"
    params:
        settings=settings_of("figures"),
        code=code_of("draw_figures.py"),
    message:
        "draw_figures"
    script:
        "../scripts/draw_figures.py"
