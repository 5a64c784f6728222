"""Servers: one per model for all jobs of a run, for models of engine vllm where the config asks for them (jobs.engines: service).

serve_model makes servers/{model}.json, the address; it is gone when the run is over, and so is the server.
"""

if SERVED:
    serving.forget_dead(f"{RESULTS}/servers")
    _asked = sum(config["models"][name]["machine"].get("tensor_parallel_size", 1) for name in SERVED)
    if 0 < devices.gpus() < _asked:
        sys.exit(
            f"midtrace: error: config: jobs.engines: service keeps the servers of all models at once, which takes {_asked} GPUs, and here are "
            f"{devices.gpus()}; allowed: per_model, or fewer models at a time (run.models)"
        )


rule serve_model:
    output:
        f"{RESULTS}/servers/{{model}}.json",
    log:
        f"{LOGS}/serve_model/{{model}}.log",
    localrule: True
    conda:
        "../envs/vllm.yaml"
    resources:
        gpu=gpus_of_server,
    params:
        settings=lambda wildcards: study_config.model_settings(config, wildcards.model),
        machine=machine_of,
        owner=owner_of,
    message:
        "serve_model {wildcards.model}"
    script:
        "../scripts/serve_model.py"
