"""Seeds that belong to (item, replicate) and to nothing else."""

import hashlib
from collections.abc import Iterable


def stable_hash(*parts: object) -> int:
    """A 63-bit integer from the text of ``parts``; the same on every machine and in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def trace_seed(base: int, item_id: str, replicate: int) -> int:
    """Seed of a trace: shared across arms, so that (item, replicate) pairs are matched (method, section 1)."""
    return stable_hash("trace", base, item_id, replicate)


def continuation_seed(base: int, item_id: str, replicate: int, keys: Iterable[object]) -> int:
    """Seed of a sampled continuation at a cut."""
    return stable_hash("continuation", base, item_id, replicate, *keys)


def interruption_seed(base: int, item_id: str, replicate: int, intervention: str, cut_id: str) -> int:
    """Seed of what follows an interruption: of (item, replicate, intervention, cut) and nothing else."""
    return stable_hash("interruption", base, item_id, replicate, intervention, cut_id)
