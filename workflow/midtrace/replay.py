"""Stage 3: token-exact replay. Where each trace is cut, and the exact ids up to there. Nothing is decoded and re-encoded."""

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import tables


def end_of(start: int, n: int, format_after: Sequence[int] = ()) -> int:
    """Index in the output ids after the first ``n`` reasoning tokens: those before the first, these, and the format between them.

    Format that stands after the last of them is not kept: the reasoning may end there.
    """
    return start + n + sum(at < n for at in format_after)


def prefix_end(trace: Mapping[str, Any], n: int) -> int:
    """The same for a row of the traces table."""
    return end_of(trace["reasoning_start"], n, trace.get("format_after") or ())


def prefix_of(trace: Mapping[str, Any], n: int, prompt_ids: Sequence[int]) -> list[int]:
    """:func:`prefix_ids` of a row of the traces table under a prompt."""
    return prefix_ids(prompt_ids, trace["output_ids"], trace["reasoning_start"], n, trace.get("format_after") or ())


def reasoning_ids(trace: Mapping[str, Any]) -> list[int]:
    """The reasoning tokens of a trace, without the format between them."""
    start, n, format_after = trace["reasoning_start"], trace["n_reasoning"], trace.get("format_after") or ()
    return [trace["output_ids"][at] for at in positions(start, n, format_after)]


def positions(start: int, n: int, format_after: Sequence[int] = ()) -> list[int]:
    """Indices in the output ids of ``n`` reasoning tokens."""
    return [end_of(start, k, format_after) - 1 for k in range(1, n + 1)] if format_after else list(range(start, start + n))


def prefix_ids(prompt_ids: Sequence[int], output_ids: Sequence[int], start: int, n: int, format_after: Sequence[int] = ()) -> list[int]:
    """Prompt and output ids up to and including the first ``n`` reasoning tokens.

    Parameters
    ----------
    prompt_ids, output_ids
        Ids as stored.
    start
        Index in ``output_ids`` of the first reasoning token.
    n
        Reasoning tokens to keep; 0 keeps none.
    format_after
        Of each token of format between reasoning tokens, how many of these stand before it (:class:`midtrace.dialects.Reasoning`). What stands
        between kept tokens is kept.

    Raises
    ------
    ValueError
        If the output has no ``start + n`` tokens: a shorter prefix would be another cut, silently.
    """
    end = end_of(start, n, format_after)
    if n < 0 or end > len(output_ids):
        raise ValueError(f"cannot keep {n} reasoning tokens from {start} on of {len(output_ids)} output tokens")
    return [*prompt_ids, *output_ids[:end]]


def is_complete(status: str, n_reasoning: int, horizon: int) -> bool:
    """A run is complete at B iff it terminated and L <= B (method, section 1)."""
    return status == "terminated" and n_reasoning <= horizon


def sentence_ends(ids: Sequence[int], tokenizer: Any) -> list[int]:
    """Numbers of tokens after which a sentence ends, increasing; the last one is all of them.

    A sentence ends at ``.``, ``!`` or ``?`` (with what closes a quotation) before white space, and at a line break; the token that holds the
    last character of it is the last one of the sentence.
    """
    pieces = tokenizer.batch_decode([[i] for i in ids])
    ends = list(accumulate(map(len, pieces)))
    found = {bisect_left(ends, match.end()) + 1 for match in re.finditer(r"[.!?][\"')\]*]*(?=\s)|\n+", "".join(pieces))}
    return sorted(found | {len(ids)})


def cuts_of(
    trace: Mapping[str, Any],
    horizons: Sequence[int],
    fractions: Sequence[float],
    matched: Mapping[str, int],
    sentences: Mapping[float, int] | None = None,
) -> Iterator[dict[str, Any]]:
    """All cuts of one trace.

    Parameters
    ----------
    trace
        A raw trace.
    horizons
        Fixed horizons B: the prefix is the first min(B, L) reasoning tokens.
    fractions
        Shares X of L: the prefix is the first ceil(X L) tokens, at least 1 unless X is 0; left out for a trace without reasoning.
    matched
        Partner arm -> horizon in tokens: the length of the treatment's run, for both roles.
    sentences
        Share X of L -> the end of a sentence nearest to it, in tokens.
    """
    length, drift_at = trace["n_reasoning"], trace["drift_at"]

    def row(cut: str, name: object, n: int, horizon: int | None = None, fraction: float | None = None, partner: str | None = None) -> dict[str, Any]:
        end = prefix_end(trace, n)
        if prefix_of(trace, n, []) != trace["output_ids"][:end]:
            raise AssertionError(f"{trace['trace_id']}: the replayed prefix differs from the stored ids")
        return {
            "trace_id": trace["trace_id"],
            "cut_id": f"{cut}:{name}",
            "cut": cut,
            "horizon": horizon,
            "fraction": fraction,
            "partner_arm": partner,
            "n_tokens": n,
            "complete": is_complete(trace["status"], length, n if horizon is None else horizon),
            "drift": drift_at is not None and drift_at < end,
        }

    for horizon in horizons:
        yield row("horizon", horizon, min(horizon, length), horizon=horizon)
    if length:
        for fraction in fractions:
            # 0.55 * 100 is 55.00000000000001 in floating point: round before taking the ceiling.
            yield row("fraction", f"{fraction:g}", max(int(fraction > 0), math.ceil(round(fraction * length, 9))), fraction=fraction)
    for fraction, n in (sentences or {}).items():
        yield row("sentence", f"{fraction:g}", n, fraction=fraction)
    for partner, horizon in matched.items():
        yield row("matched", partner, min(horizon, length), horizon=horizon, partner=partner)


def run(traces: str | Path, partners: Mapping[str, str | Path], output: str | Path, study: str, settings: Mapping[str, Any]) -> None:
    """Write ``cuts/...`` for the traces of an arm and replicate.

    Parameters
    ----------
    traces, partners
        Raw traces of the arm, and of each arm that it is compared with.
    output
        The cuts table to write.
    study, settings
        Name of the study; see :func:`midtrace.config.replay_settings`.

    Notes
    -----
    The matched horizon of a pair is the length L_t of the treatment's run. A pair whose treatment did not terminate, or whose partner is
    missing, has no matched cut; the decomposition counts the pairs that have one.
    """
    meta = tables.check_identity(traces, settings["traces"])
    own = tables.read(traces, tables.RawTraces)
    lengths: dict[str, dict[str, int]] = {item: {} for item in own["item_id"]}
    for partner, path in partners.items():
        entry = settings["partners"][partner]
        other = tables.read(path, tables.RawTraces, entry["traces"])
        treatment = other if entry["role"] == "reference" else own  # the role is that of this arm
        paired = own.select("item_id").join(other.select("item_id"), on="item_id")["item_id"]
        terminated = treatment.filter(pl.col("status") == "terminated", pl.col("item_id").is_in(paired.implode()))
        for item, length in terminated.select("item_id", "n_reasoning").iter_rows():
            lengths[item][partner] = length
    horizons = sorted({*settings["horizons"], *settings.get("availability", ()), *settings.get("later", ())})
    rows = [row for trace in own.iter_rows(named=True) for row in cuts_of(trace, horizons, settings["fractions"], lengths[trace["item_id"]])]
    facts = {key: meta[key] for key in ("tokenizer", "engine", "dtype") if key in meta}
    tables.write(tables.frame_of(rows, tables.Cuts), output, tables.Cuts, tables.metadata("replay", study, settings, **facts))
