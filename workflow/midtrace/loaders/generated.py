"""Items of the embedded model: held-out chains of modular arithmetic (:mod:`midtrace.chains`)."""

import random
from typing import Any

from midtrace.chains import LENGTHS, Chain, draw_held_out, is_held_out
from midtrace.loaders.loader import Loader, Settings
from midtrace.seeds import stable_hash


def chain_items(settings: Settings, seed: int) -> list[dict[str, Any]]:
    """Item ``k`` depends on (seed, k) only, and lengths take turns.

    ``chains_update`` items carry the chain without its last step as ``revised_question``, the step as ``update`` and the answer without
    it as ``stale_answer``.
    """
    rows = []
    with_update = settings["loader"] == "chains_update"
    for index in range(settings["n"]):
        rng = random.Random(stable_hash("chains", seed, settings["loader"], index))
        chain = draw_held_out(rng, LENGTHS[index % len(LENGTHS)])
        while with_update and (not is_held_out(chain.revised) or chain.revised.answer == chain.answer):
            chain = draw_held_out(rng, LENGTHS[index % len(LENGTHS)])
        rows.append(_row(settings, index, chain, with_update))
    return rows


def _row(settings: Settings, index: int, chain: Chain, with_update: bool) -> dict[str, Any]:
    choice = settings["answer_kind"] == "choice"

    def text(value: int) -> str:
        return chain.labels[value] if choice else str(value)

    return {
        "item_id": f"{settings['name']}/{index:05d}",
        "benchmark": settings["name"],
        "stratum": f"{len(chain.steps)} steps",
        "question": chain.question,
        "options": [str(value) for value in range(chain.modulus)] if choice else [],
        "answer": text(chain.answer),
        "answer_kind": settings["answer_kind"],
        "revised_question": chain.revised.question if with_update else None,
        "update": chain.update if with_update else None,
        "stale_answer": text(chain.revised.answer) if with_update else None,
    }


CHAINS = Loader(name="chains", answer_kinds=("choice", "math"), generate=chain_items)
CHAINS_UPDATE = Loader(name="chains_update", answer_kinds=("choice", "math"), updates=True, generate=chain_items)
