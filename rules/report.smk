"""Report: one self-contained page.

Makes report.html from decomposition/*.parquet, figures/*.svg, and the counts and metadata of items, traces, readouts and controls.
"""


rule report:
    input:
        rules.figures.input,
        f"{RESULTS}/claims.json",
        f"{RESULTS}/report.html",


rule write_report:
    input:
        **decomposition_files(),
        item_tables=stage_files()["item_tables"],
        traces=shards("traces"),
        readouts=shards("readouts", CHOICE_BENCHMARKS),
        control_tables=control_files(),
        figures=figure_files("svg"),
        interruptions=interruption_figures(),
        interruption_tables=interruption_tables()[:1],
    output:
        report(f"{RESULTS}/report.html", caption="../workflow/report/report.rst", category="Report"),
    log:
        f"{LOGS}/write_report.log",
    conda:
        "../envs/analysis.yaml"
    params:
        study=config["study"],
        settings=settings_of("report"),
        interrupted=settings_of("interruption_analysis", interruption_config) if INTERVENTIONS else None,
        code=code_of("write_report.py"),
        template=[study_config.file_hash(str(path)) for path in report_templates()],
    message:
        "write_report"
    script:
        "../scripts/write_report.py"
