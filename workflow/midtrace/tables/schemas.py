"""The columns of every table that a stage writes."""

from typing import Any

import dataframely as dy
import polars as pl


def one_of(*values: str) -> str:
    """A regular expression that admits these values only."""
    return "^(" + "|".join(values) + ")$"


def _text(nullable: bool = False, **kwargs) -> dy.String:
    return dy.String(nullable=nullable, **kwargs)


def _ids() -> dy.List:
    return dy.List(dy.Int32(nullable=False), nullable=False)


class Items(dy.Schema):
    """One row is an item. ``answer`` is the label or text of the right one; null where tests decide (code) or none is known (a revised question)."""

    item_id = dy.String(primary_key=True)
    benchmark = _text()
    stratum = _text()
    question = _text()
    options = dy.List(dy.String(nullable=False), nullable=False)
    answer = _text(nullable=True)
    answer_kind = _text(regex=one_of("choice", "math", "code"))
    revised_question = _text(nullable=True)
    update = _text(nullable=True)
    stale_answer = _text(nullable=True)


class Excluded(dy.Schema):
    """One row is a row of a benchmark's source that is no item of the study, and why; ``row`` counts from 1. Never its text: it may be gated."""

    row = dy.Int64(primary_key=True)
    item_id = _text()
    reason = _text()


class ItemTests(dy.Schema):
    """One row is a test of a code item; benchmarks of another kind have none.

    ``kind`` is ``stdin`` (the program reads ``input`` and prints ``expected``; ``function`` is null) or ``call`` (``function``, of the class
    ``Solution`` if the program defines one, gets the JSON values in the lines of ``input``, one argument a line, and returns the JSON value
    ``expected``).
    """

    item_id = dy.String(primary_key=True)
    test_id = dy.Int32(primary_key=True)
    kind = _text(regex=one_of("stdin", "call"))
    function = _text(nullable=True)
    input = _text()
    expected = _text()


# The grade_note of an answer that no answer statement makes.
UNSTATED = "read without an answer statement"


class RawTraces(dy.Schema):
    """One row is a trace as sampled. ``reasoning_start`` indexes ``output_ids``; ``n_reasoning`` counts tokens.

    ``format_after`` has, for each token of format between reasoning tokens, the number of these before it; empty but for gpt-oss runs with
    several messages of reasoning (:class:`midtrace.dialects.Reasoning`).
    ``drift_at`` is the first index that a decode-encode round trip changes (null: none); ``problem`` says what of the format broke.
    """

    trace_id = dy.String(primary_key=True)
    model = _text()
    item_id = _text()
    arm = _text()
    replicate = dy.Int32(nullable=False)
    seed = dy.Int64(nullable=False)
    prompt_ids = _ids()
    output_ids = _ids()
    reasoning_start = dy.Int32(nullable=False)
    n_reasoning = dy.Int32(nullable=False)
    format_after = _ids()
    status = _text(regex=one_of("terminated", "truncated", "malformed"))
    problem = _text(nullable=True)
    finish_reason = _text(regex=one_of("stop", "length"))
    answer_text = _text()
    drift_at = dy.Int32(nullable=True)
    token_exact = dy.Bool(nullable=False)


class StoredGenerations(dy.Schema):
    """One row is a finished generation; ``request`` is the digest of what was asked (:mod:`midtrace.store`)."""

    request = dy.String(primary_key=True)
    ids = _ids()
    finish_reason = _text(regex=one_of("stop", "length"))


class StoredScores(dy.Schema):
    """One row is a prefix that was read; ``logprobs`` are those of the candidates, in their order."""

    request = dy.String(primary_key=True)
    logprobs = dy.List(dy.Float64(nullable=False, allow_inf=True, allow_nan=True), nullable=False)


def _grader() -> dy.String:
    return _text(regex=one_of("rules", "judge"))


def _judge_verdict() -> dy.String:
    return _text(nullable=True, regex=one_of("same", "different", "unread", "truncated", "not_asked"))


class Traces(RawTraces):
    """One row is a trace with its natural answer (null: unparsed, which counts as wrong).

    ``answer`` of a code item is its program; ``grade_note`` says why a program failed, in words that quote neither it nor a test, and is
    ``UNSTATED`` for any other answer that was read without an answer statement (``docs/benchmarks.md``). ``grader`` says who decided
    ``correct``. If a judge: ``judge_verdict`` is what became of its verdict (right is ``same`` alone), ``judge_text`` what it said (null: it was
    not asked), and ``rules_correct`` what the rules say of the ``answer`` that they read; else these are null.
    """

    answer = _text(nullable=True)
    correct = dy.Bool(nullable=False)
    grade_note = _text(nullable=True)
    grader = _grader()
    rules_correct = dy.Bool(nullable=True)
    judge_verdict = _judge_verdict()
    judge_text = _text(nullable=True)


class _CutKeys(dy.Schema):
    """Keys of a cut: ``cut_id`` is ``horizon:B``, ``matched:PARTNER`` or ``fraction:X``; ``horizon`` is B in tokens."""

    trace_id = dy.String(primary_key=True)
    cut_id = dy.String(primary_key=True)
    cut = _text(regex=one_of("horizon", "matched", "fraction", "sentence"))
    horizon = dy.Int32(nullable=True)
    fraction = dy.Float64(nullable=True)
    partner_arm = _text(nullable=True)
    n_tokens = dy.Int32(nullable=False)
    complete = dy.Bool(nullable=False)


CUT_KEYS = tuple(_CutKeys.column_names())


class Cuts(_CutKeys):
    """One row is a trace at a cut. ``drift``: the decoded and re-encoded output differs within the prefix."""

    drift = dy.Bool(nullable=False)


class Readouts(_CutKeys):
    """One row is a cut read by the forced-answer probe in a context."""

    context = dy.String(primary_key=True, regex=one_of("policy", "common"))
    context_arm = dy.String(primary_key=True)
    option_logprob = dy.List(dy.Float32(nullable=False, allow_inf=True), nullable=False)
    candidate_mass = dy.Float64(nullable=False)
    choice = _text()
    tie = dy.Bool(nullable=False)
    low_mass = dy.Bool(nullable=False)
    q_gold = dy.Float64(nullable=False)
    correct = dy.Bool(nullable=False)
    brier = dy.Float64(nullable=False)
    log_loss = dy.Float64(nullable=False, allow_inf=True)
    gold_log_odds = dy.Float64(nullable=False, allow_inf=True)


class _Continued(_CutKeys):
    context = dy.String(primary_key=True, regex=one_of("policy", "common"))
    context_arm = dy.String(primary_key=True)
    mode = dy.String(primary_key=True, regex=one_of("answer", "resume", "natural"))
    text = _text()


class RawContinuations(_Continued):
    """One row is a cut continued by the engine. ``text`` is the answer, the stem included."""

    output_ids = _ids()


class Continuations(_Continued):
    """One row is a cut continued and graded. ``agrees_with_probe`` is null where the benchmark has no options to probe."""

    answer = _text(nullable=True)
    correct = dy.Bool(nullable=False)
    grade_note = _text(nullable=True)
    grader = _grader()
    rules_correct = dy.Bool(nullable=True)
    judge_verdict = _judge_verdict()
    judge_text = _text(nullable=True)
    agrees_with_probe = dy.Bool(nullable=True)


class RawInterruptions(_CutKeys):
    """One row is a trace interrupted at a cut and continued; ``n_tokens`` of its ``n_reasoning`` reasoning tokens were kept.

    ``inserted_ids`` stand at index ``inserted_at`` of the output; ``output_ids`` is what the model wrote after them. ``status`` and ``problem``
    are those of the whole; ``n_answer``, ``n_added_content`` and ``n_base_answer`` count tokens without white space at either end;
    ``probe_choice`` is what the forced-answer probe reads at the same cut (null: not read).
    """

    intervention = dy.String(primary_key=True)
    seed = dy.Int64(nullable=False)
    inserted_ids = _ids()
    inserted_at = dy.Int32(nullable=False)
    output_ids = _ids()
    finish_reason = _text(regex=one_of("stop", "length"))
    status = _text(regex=one_of("terminated", "truncated", "malformed"))
    problem = _text(nullable=True)
    n_reasoning = dy.Int32(nullable=False)
    n_added_reasoning = dy.Int32(nullable=False)
    n_added_content = dy.Int32(nullable=False)
    n_answer = dy.Int32(nullable=False)
    n_base_answer = dy.Int32(nullable=False)
    added_text = _text()
    answer_text = _text()
    probe_choice = _text(nullable=True)


# What explains an error that an interruption adds: the first that applies, in this order (docs/interruptions.md).
ERROR_MODES = ("panic", "self_doubt", "leakage", "unfinished", "unparsed", "other")


class Interruptions(RawInterruptions):
    """One row is an interrupted trace with its answer, beside the fresh run on the whole question (``fresh_...``; null: it is missing).

    Failure modes (docs/interruptions.md) are null where they cannot occur: ``panic`` after an update or a close, ``self_doubt`` without an
    update, ``leakage_ratio`` where the uninterrupted answer is empty, ``comment_lines`` outside of code, ``stale`` for code. ``stale_source`` says
    whose answer ``stale`` compares with: the item's ``stale_answer``, or, where the source states none, that of the interrupted run itself.
    """

    item_id = _text()
    replicate = dy.Int32(nullable=False)
    answer = _text(nullable=True)
    correct = dy.Bool(nullable=False)
    grade_note = _text(nullable=True)
    grader = _grader()
    rules_correct = dy.Bool(nullable=True)
    judge_verdict = _judge_verdict()
    judge_text = _text(nullable=True)
    fresh_correct = dy.Bool(nullable=True)
    fresh_tokens = dy.Int32(nullable=True)
    leakage_ratio = dy.Float64(nullable=True)
    reasoning_markers = dy.Int32(nullable=False)
    comment_lines = dy.Int32(nullable=True)
    fresh_comment_lines = dy.Int32(nullable=True)
    doubts = dy.Int32(nullable=True)
    stale = dy.Bool(nullable=True)
    stale_source = _text(nullable=True, regex=one_of("item", "run"))
    panic = dy.Bool(nullable=True)
    self_doubt = dy.Bool(nullable=True)
    mode = _text(nullable=True, regex=one_of(*ERROR_MODES))


READOUTS = tuple(f"{name}{ending}" for ending in ("", "_continuation") for name in ("terminal", "symmetric_own", "symmetric"))


class Outcomes(dy.Schema):
    """One row is a trace at a horizon under a readout. ``token_exact`` is the trace's: rows without it enter sensitivity tables only."""

    model = dy.String(primary_key=True)
    benchmark = dy.String(primary_key=True)
    item_id = dy.String(primary_key=True)
    stratum = _text()
    arm = dy.String(primary_key=True)
    replicate = dy.Int32(primary_key=True)
    horizon = dy.Int32(primary_key=True)
    complete = dy.Bool(nullable=False)
    readout = dy.String(primary_key=True, regex=one_of(*READOUTS))
    context_arm = dy.String(primary_key=True)
    token_exact = dy.Bool(nullable=False)
    correct = dy.Bool(nullable=False)
    q_gold = dy.Float64(nullable=True)
    brier = dy.Float64(nullable=True)
    log_loss = dy.Float64(nullable=True, allow_inf=True)
    gold_log_odds = dy.Float64(nullable=True, allow_inf=True)


class Controls(dy.Schema):
    """One row is an item read behind a constructed prefix. ``follows``: the probe chose the ``stated`` label (null: none was stated)."""

    model = dy.String(primary_key=True)
    item_id = dy.String(primary_key=True)
    control = dy.String(primary_key=True)
    position = dy.String(primary_key=True, regex=one_of("early", "late", "whole"))
    n_tokens = dy.Int32(nullable=False)
    n_options = dy.Int32(nullable=False)
    stated = _text(nullable=True)
    choice = _text()
    follows = dy.Bool(nullable=True)
    correct = dy.Bool(nullable=False)


# Columns of every decomposition table, and what each table has besides.
ESTIMATE_COLUMNS = {
    "model": pl.String,
    "benchmark": pl.String,
    "treatment": pl.String,
    "reference": pl.String,
    "estimand": pl.String,
    "horizon": pl.Int32,
    "readout": pl.String,
    "estimate": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n_items": pl.Int64,
    "n_pairs": pl.Int64,
    "method": pl.String,
}
DECOMPOSITION: dict[str, dict[str, Any]] = {
    "policy": {"p": pl.Float64, "p_holm": pl.Float64},
    "strata": {
        "termination": pl.String,
        **dict.fromkeys(("share", "share_low", "share_high", "difference", "difference_low", "difference_high", "contribution"), pl.Float64),
    },
    "dominance": {"p": pl.Float64},
    "bounds": {"reading": pl.String, "termination": pl.String},
    "survivors": {"stratum": pl.String},
    "matched": {"p": pl.Float64, "p_holm": pl.Float64},
    "split": {},
    "lengths": {},
    "scores": {},
    "availability": {},
    "validity": {"context": pl.String, "context_arm": pl.String, "fraction": pl.Float64},
    "agreement": {"reading": pl.String, "context": pl.String, "context_arm": pl.String, "fraction": pl.Float64, "k": pl.Int32},
    "falsifier": {"context": pl.String, "fraction": pl.Float64},
    "judging": {"reading": pl.String},
    "retokenisation": {},
    "replicates": {"replicate": pl.Int32},
    "inference": {
        "approach": pl.String,
        "replicate": pl.Int32,
        "band_low": pl.Float64,
        "band_high": pl.Float64,
        "p": pl.Float64,
        "p_holm": pl.Float64,
        "status": pl.String,
        "variance_item": pl.Float64,
        "variance_replicate": pl.Float64,
        "variance_residual": pl.Float64,
    },
    "sensitivity": {"cohort": pl.String},
    "controls": {"control": pl.String, "position": pl.String},
    "planted": {"control": pl.String, "planted": pl.Float64, "low": pl.Float64, "high": pl.Float64, "covered": pl.Boolean, "holds": pl.Boolean},
}

INTERRUPTION_KEYS = {"intervention": pl.String, "cut": pl.String, "fraction": pl.Float64}
INTERRUPTIONS: dict[str, dict[str, Any]] = {
    "interruptions": INTERRUPTION_KEYS,
    "interruptions_leakage": {**INTERRUPTION_KEYS, "ratio": pl.Float64},
    "interruptions_errors": {**INTERRUPTION_KEYS, "mode": pl.String},
    "interruptions_contrasts": {**INTERRUPTION_KEYS, "against": pl.String},
}


def estimate_columns(table: str) -> dict[str, Any] | None:
    """Columns of a table of estimates and their types, in order; None for a name that is none."""
    own = (DECOMPOSITION | INTERRUPTIONS).get(table)
    return None if own is None else ESTIMATE_COLUMNS | own
