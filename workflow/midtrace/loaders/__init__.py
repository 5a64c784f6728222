"""Loaders: one record per source of items (docs/benchmarks.md). A config names one under ``loader``; a new one is a record in :data:`LOADERS`."""

from midtrace.loaders.choice import AQUA_RAT, GPQA, MMLU_PRO
from midtrace.loaders.generated import CHAINS, CHAINS_UPDATE
from midtrace.loaders.live_code_bench import LIVE_CODE_BENCH
from midtrace.loaders.loader import Loader, UnusableError
from midtrace.loaders.mathematics import AIME_2024, AIME_2025, GSM8K, MATH_500, OMNI_MATH, OMNI_MATH_2
from midtrace.loaders.updates import INTERRUPT_UPDATES
from midtrace.loaders.user_file import USER_FILE

__all__ = ["LOADERS", "Loader", "UnusableError"]

LOADERS: dict[str, Loader] = {
    loader.name: loader
    for loader in (
        CHAINS,
        CHAINS_UPDATE,
        USER_FILE,
        MMLU_PRO,
        GPQA,
        AQUA_RAT,
        GSM8K,
        MATH_500,
        AIME_2024,
        AIME_2025,
        OMNI_MATH,
        OMNI_MATH_2,
        LIVE_CODE_BENCH,
        INTERRUPT_UPDATES,
    )
}
