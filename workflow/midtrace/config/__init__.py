"""Config: read, validated, defaults filled (:func:`load`), and cut into the settings of each stage (:mod:`midtrace.config.settings`)."""

from pathlib import Path
from typing import Any

import yaml

from midtrace import wording
from midtrace.config import interruptions, plausibility
from midtrace.config.checks import check
from midtrace.config.plausibility import warnings
from midtrace.config.reading import conform, read_yaml, schema
from midtrace.config.selection import all_arms, arms, choice_benchmarks, context_arms, partners, read_contexts, replicates, selected
from midtrace.config.settings import (
    REVISED,
    analysis_settings,
    arm_settings,
    code_settings,
    continuation_settings,
    controls_settings,
    figures_settings,
    file_hash,
    folder_hash,
    graded,
    graded_continuation_settings,
    graded_traces_settings,
    items_settings,
    judge_settings,
    judged,
    outcomes_settings,
    probe_settings,
    prompt_of,
    replay_settings,
    report_settings,
    traces_settings,
)
from midtrace.errors import InputError

__all__ = [
    "REVISED",
    "all_arms",
    "analysis_settings",
    "arm_settings",
    "arms",
    "choice_benchmarks",
    "code_settings",
    "context_arms",
    "continuation_settings",
    "controls_settings",
    "figures_settings",
    "file_hash",
    "folder_hash",
    "graded",
    "graded_continuation_settings",
    "graded_traces_settings",
    "interruptions",
    "items_settings",
    "judge_settings",
    "judged",
    "load",
    "outcomes_settings",
    "partners",
    "probe_settings",
    "prompt_of",
    "read_contexts",
    "read_yaml",
    "replay_settings",
    "replicates",
    "report_settings",
    "schema",
    "selected",
    "traces_settings",
    "validate",
    "warnings",
]


def load(*paths: str | Path) -> dict[str, Any]:
    """Read and validate a config; keys of further files are laid over those of the first, as ``snakemake --configfile`` does."""
    config: Any = {}
    for path in paths:
        try:
            found = read_yaml(path)
        except OSError as error:
            raise InputError(path, "file", error.strerror or str(error), "a readable YAML file") from None
        except (yaml.YAMLError, UnicodeError, ValueError, TypeError, RecursionError) as error:  # the last three: dates and keys that are none
            raise InputError(path, "file", f"is not YAML ({' '.join(str(error).split())})", "valid YAML") from None
        config = _laid_over(config, found)
    return validate(config, " + ".join(map(str, paths)))


def _laid_over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: _laid_over(below.get(key), value) for key, value in above.items()}}


def validate(config: Any, where: object) -> dict[str, Any]:
    """Check a config against its schema and its own cross-references; return a copy with defaults filled.

    Parameters
    ----------
    config
        As read from YAML.
    where
        File name for messages.

    Raises
    ------
    InputError
        At the first mistake.
    """
    config = conform(config, where)
    config["arms"] = {name: wording.arm(name, record, where) for name, record in config["arms"].items()}
    config = interruptions.with_wordings(config, where)
    check(config, where)
    interruptions.check(config, where)
    plausibility.check(config, where)
    return config
