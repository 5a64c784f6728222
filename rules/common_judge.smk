# Jobs that grade: by rules, or by a judge, which is a model that such a job loads or asks. No rule here.
from midtrace import vocabulary


def judge_of(wildcards):
    """The model entry of the judge, where it grades the benchmark of a job; else None."""
    grader = config["benchmarks"][wildcards.benchmark.removesuffix(study_config.REVISED)]["grader"]
    return config["judge"]["model"] if grader == "judge" else None


def graded_code_of(script):
    """A params function: the digest of the code behind a rule that grades, for the engine of its judge."""

    def code(wildcards):
        judge = judge_of(wildcards)
        return code_digest(script, judge and judge["engine"])

    return code


@no_reason_to_rerun
def machine_of_judge(wildcards):
    """A params function: where and how the judge runs."""
    judge = judge_of(wildcards)
    return judge["machine"] if judge else {}


@no_reason_to_rerun
def service_of_judge(wildcards):
    """A params function: the service of the judge."""
    judge = judge_of(wildcards)
    return service("judge", judge) if judge else None


def env_of_grader(wildcards):
    """The conda environment of a job that grades: that of its judge's engine, where it has a judge."""
    judge = judge_of(wildcards)
    return env_of(judge) if judge else f"{workflow.basedir}/envs/analysis.yaml"


def gpus_of_grader(wildcards):
    """A resources function: the GPUs of a job that grades."""
    judge = judge_of(wildcards)
    return gpus_of(judge) if judge else 0


def memory_of_grader(wildcards, attempt):
    """A resources function: MB of a job that grades."""
    judge = judge_of(wildcards)
    return memory_of(judge, attempt) if judge else memory.CLIENT * attempt


def runtime_of_grader(wildcards, attempt):
    """A resources function: minutes of a job that grades."""
    return (240 if judge_of(wildcards) else 30) * attempt


def batch_of_grader(wildcards):
    """A resources function: answers that a judge reads at once."""
    judge = judge_of(wildcards)
    return 64 if judge is None or judge["engine"] == "transformers" else 512


def check_judge(jobs):
    """Refuse a judge whose commit is not chosen before the first job of a run that comes to it: hours later would be late."""
    judges = (judge_of(job.wildcards) for job in jobs if "programs" in job.rule.params.keys())  # it grades
    judge = next((judge for judge in judges if judge), None)
    if judge:
        vocabulary.require_commit(judge)
