"""Seeded draws of items: whatever the draw for ``n`` holds, the draw for a larger ``n`` holds too, in the same places."""

import heapq
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import islice

import polars as pl

from midtrace.seeds import stable_hash


def draw(frame: pl.DataFrame, n: int | None, seed: int, strata: str | None = None) -> pl.DataFrame:
    """The first ``n`` items of a seeded order.

    Parameters
    ----------
    frame
        Usable items; ``item_id`` and ``stratum`` are used.
    n
        Number of items, at most those of the frame; None for all.
    seed
        Base seed of the study.
    strata
        None: the order is one of hashes of the ids, so it hangs neither on the order of the frame nor on what else is in it. ``proportional``
        or ``equal``: within a stratum the order is the same; whose turn it is, :func:`turns` says, which hangs on the sizes of the strata.
    """
    order = sorted(range(len(frame)), key=lambda row: stable_hash("draw", seed, frame["item_id"][row]))
    if strata is None:
        return frame[order[:n]]
    queues: dict[str, list[int]] = {}
    for row in order:
        queues.setdefault(frame["stratum"][row], []).append(row)
    sizes = {stratum: len(rows) for stratum, rows in queues.items()}
    taken = dict.fromkeys(queues, 0)
    drawn = []
    for stratum in islice(turns(sizes, strata), n):
        drawn.append(queues[stratum][taken[stratum]])
        taken[stratum] += 1
    return frame[drawn]


def turns(sizes: Mapping[str, int], strata: str) -> Iterator[str]:
    """Which stratum gives the next item, until all are empty.

    Parameters
    ----------
    sizes
        Items by stratum, N in all.
    strata
        ``proportional``: the next item comes from the stratum with the smallest (2k + 1) / size, where k counts what it has given: the divisor
        method of Sainte-Laguë (Webster). ``equal``: the strata take turns, in the order of their names; an empty one is left out.

    Notes
    -----
    Largest remainders cannot do this: with a larger n a stratum may lose an item (the Alabama paradox). Sainte-Laguë's method shares n items
    as largest remainders do in most cases, and where they differ it is by an item per stratum. How often, is measured in docs/benchmarks.md.
    Ties go to the stratum whose name comes first.

    References
    ----------
    Balinski and Young, Fair Representation (1982).
    """

    def priority(stratum: str, given: int) -> Fraction:
        return Fraction(2 * given + 1, sizes[stratum]) if strata == "proportional" else Fraction(given)

    waiting = [(priority(stratum, 0), stratum, 0) for stratum in sizes if sizes[stratum]]
    heapq.heapify(waiting)
    while waiting:
        _, stratum, given = waiting[0]
        yield stratum
        if given + 1 < sizes[stratum]:
            heapq.heapreplace(waiting, (priority(stratum, given + 1), stratum, given + 1))
        else:
            heapq.heappop(waiting)
