"""Agreement, kappa, the falsifier, later readouts: against scikit-learn and hand computation."""

import numpy as np
import polars as pl
import pytest

from midtrace import estimands
from midtrace.decomposition import readings
from midtrace.inference import resample_weights

DRAW = {"resamples": 200, "level": 0.95, "seed": 3}


def answered(n, seed, replicates=1):
    rng = np.random.default_rng(seed)
    answer = rng.integers(4, size=n * replicates)
    choice = np.where(rng.random(n * replicates) < 0.6, answer, rng.integers(4, size=n * replicates))
    gold = rng.integers(4, size=n * replicates)
    letters = np.array(list("ABCD"))
    return pl.DataFrame(
        {
            "item_id": np.repeat([f"i{k:03d}" for k in range(n)], replicates),
            "choice": letters[choice],
            "answer": letters[answer],
            "probe_correct": choice == gold,
            "answer_correct": answer == gold,
        }
    )


def estimates(table):
    return dict(table.select("estimand", "estimate").iter_rows())


def test_kappa_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    frame = answered(60, 1)
    found = estimates(estimands.agreement(frame, [], **DRAW))
    assert found["kappa"] == pytest.approx(metrics.cohen_kappa_score(frame["choice"], frame["answer"]), abs=1e-12)
    assert found["agreement"] == pytest.approx(metrics.accuracy_score(frame["choice"], frame["answer"]))
    # With unequal replicates, items weigh equally: scikit-learn's sample weights are 1 / replicates.
    uneven = pl.concat([frame, answered(60, 2).head(20)])
    weights = uneven.select(1 / pl.len().over("item_id")).to_series().to_numpy()
    found = estimates(estimands.agreement(uneven, [], **DRAW))
    assert found["kappa"] == pytest.approx(metrics.cohen_kappa_score(uneven["choice"], uneven["answer"], sample_weight=weights), abs=1e-12)


def test_kappa_by_hand_and_its_edges():
    # p_o = 0.7, p_e = 0.5 x 0.6 + 0.5 x 0.4 = 0.5: kappa = 0.4.
    assert estimands.kappa_of_shares(np.array([0.7]), np.array([[0.5, 0.5]]), np.array([[0.6, 0.4]]))[0] == pytest.approx(0.4)
    assert np.isnan(estimands.kappa_of_shares(np.array([1.0]), np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]))[0])
    assert estimands.kappa_of_shares(np.array([1.0]), np.array([[0.5, 0.5]]), np.array([[0.5, 0.5]]))[0] == pytest.approx(1.0)


def test_limits_of_kappa_equal_a_loop():
    frame = answered(30, 4, replicates=2)
    table = estimands.agreement(frame, [], **DRAW)
    groups = [part for _, part in frame.group_by("item_id", maintain_order=True)]
    draws = []
    for weight in resample_weights(30, 200, 3):
        drawn = pl.concat([groups[k] for k, count in enumerate(weight) for _ in range(int(count))])
        same = (drawn["choice"] == drawn["answer"]).mean()
        chance = sum((drawn["choice"] == label).mean() * (drawn["answer"] == label).mean() for label in "ABCD")
        draws.append((same - chance) / (1 - chance))
    low, high = table.filter(pl.col("estimand") == "kappa").select("ci_low", "ci_high").row(0)
    np.testing.assert_allclose([low, high], np.quantile(draws, [0.025, 0.975]), atol=1e-9)


def test_an_unparsed_answer_agrees_with_nothing():
    frame = pl.DataFrame(
        {"item_id": ["x", "y"], "choice": ["A", "B"], "answer": ["A", None], "probe_correct": [True] * 2, "answer_correct": [True, False]}
    )
    found = estimates(estimands.agreement(frame, [], **DRAW))
    assert found["agreement"] == 0.5
    assert found["accuracy_gap"] == 0.5
    assert found["kappa"] == pytest.approx((0.5 - 0.25) / 0.75)


def test_keys_keep_their_types_and_nulls():
    frame = answered(10, 1).with_columns(fraction=pl.lit(None, pl.Float64), k=pl.lit(8, pl.Int32))
    table = estimands.agreement(frame, ["fraction", "k"], **DRAW)
    assert table.schema["fraction"] == pl.Float64
    assert table.schema["k"] == pl.Int32
    assert table["n_pairs"].to_list() == [10] * 5


TRACES = pl.DataFrame(
    {
        "trace_id": ["t/x", "r/x", "t/y", "r/y", "r/z", "r/w"],
        "item_id": ["x", "x", "y", "y", "z", "w"],
        "arm": ["t", "r", "t", "r", "r", "r"],
        "replicate": [0] * 6,
        "status": ["terminated"] * 4 + ["truncated", "terminated"],
        "n_reasoning": [20, 100, 50, 40, 100, 80],
        "answer": ["A", "B", "A", "C", None, "D"],
        "correct": [True, False, True, False, False, True],
    }
)


def test_falsifier_reads_unfinished_prefixes_of_terminated_reference_runs():
    reads = [
        # trace, tokens, complete, context, choice
        ("r/x", 20, False, "common", "A"),
        ("r/x", 20, False, "policy", "B"),
        ("r/y", 40, True, "common", "C"),  # complete at the matched horizon
        ("r/z", 30, False, "common", "A"),  # never finished: it has no natural answer
        ("r/w", 60, False, "common", "D"),
        ("t/x", 20, True, "common", "A"),  # the treatment's own block
    ]
    frame = pl.DataFrame(reads, schema=["trace_id", "n_tokens", "complete", "context", "choice"], orient="row").with_columns(
        cut=pl.lit("matched"),
        partner_arm=pl.when(pl.col("trace_id").str.starts_with("r")).then(pl.lit("t")).otherwise(pl.lit("r")),
        context_arm=pl.when(pl.col("context") == "common").then(pl.lit("c")).otherwise(pl.lit("r")),
        correct=pl.lit(True),
    )
    found = estimands.falsifier_rows(frame, TRACES, "t", "r", "common", "c")
    assert found.select("item_id", "prefix_fraction", "choice", "answer").rows() == [("w", 0.75, "D", "D"), ("x", 0.2, "A", "B")]
    own = estimands.falsifier_rows(frame, TRACES, "t", "r", "policy", "r")
    assert own.select("item_id", "choice", "answer_correct").rows() == [("x", "B", False)]
    binned = estimands.binned(found, [0.25, 0.75, 1.0])
    assert sorted(binned.select("item_id", "fraction").rows(), key=str) == sorted([("w", None), ("x", None), ("x", 0.25), ("w", 0.75)], key=str)


def test_later_readouts_compare_a_prefix_with_itself_k_tokens_on():
    rows = [
        ("r/x", 0, False, "A"),
        ("r/x", 16, False, "B"),
        ("r/x", 64, False, "B"),
        ("r/y", 0, False, "C"),
        ("r/y", 16, False, "C"),
        ("r/y", 64, True, "C"),
    ]
    frame = pl.DataFrame(rows, schema={"trace_id": pl.String, "horizon": pl.Int32, "complete": pl.Boolean, "choice": pl.String}, orient="row")
    frame = frame.with_columns(cut=pl.lit("horizon"), context=pl.lit("policy"), correct=pl.col("choice") == "B")
    found = estimands.later_rows(frame, TRACES, [0, 16, 64])
    assert found.select("item_id", "horizon", "k", "choice", "answer").rows() == [
        ("x", 0, 16, "A", "B"),
        ("x", 16, 48, "B", "B"),
        ("y", 0, 16, "C", "C"),
    ]
    assert found["answer_correct"].to_list() == [True, True, False]
    found = estimands.later_rows(frame, TRACES, [0, 16, 64], later=[16, 64])
    assert found.filter(pl.col("item_id") == "x").select("horizon", "k", "answer").rows() == [(0, 16, "B"), (0, 64, "B"), (16, 48, "B")]


def reads(*rows):
    """Readouts of (trace, cut_id, complete, context, context_arm, choice)."""
    frame = pl.DataFrame(rows, schema=["trace_id", "cut_id", "complete", "context", "context_arm", "choice"], orient="row")
    rule, place = pl.col("cut_id").str.extract("^(.*):"), pl.col("cut_id").str.extract(":(.*)$")
    return frame.with_columns(
        cut=rule,
        horizon=pl.when(rule == "horizon").then(place).cast(pl.Int32),
        fraction=pl.when(rule == "fraction").then(place).cast(pl.Float64),
        partner_arm=pl.lit(None, pl.String),
        n_tokens=pl.lit(5, pl.Int32),
        correct=pl.col("choice") == "A",
    ).lazy()


def continuations(*rows):
    names = ("trace_id", "cut_id", "context", "context_arm", "mode", "answer")
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return frame.with_columns(correct=pl.col("answer").fill_null("") == "A").lazy()


def made(table, name):
    columns = ("item_id", "arm", "context", "context_arm", "horizon", "fraction", "k", "choice", "answer")
    return table.filter(pl.col("reading") == name).select(columns).rows()


def test_whole_blocks_count_from_any_cut_once_in_every_context():
    frame = reads(
        ("t/x", "horizon:64", True, "policy", "t", "A"),
        ("t/x", "horizon:128", True, "policy", "t", "A"),
        ("t/x", "matched:r", True, "common", "c", "B"),
        ("r/y", "matched:t", True, "common", "c", "C"),
        ("r/z", "horizon:64", False, "policy", "r", "A"),  # truncated
    )
    table = readings.readings(frame, continuations(), TRACES, "probe", [64, 128], [])
    assert made(table, "probe_natural_complete") == [
        ("y", "r", "common", "c", None, 1.0, None, "C", "C"),
        ("x", "t", "common", "c", None, 1.0, None, "B", "A"),
        ("x", "t", "policy", "t", None, 1.0, None, "A", "A"),
    ]


def test_what_is_read_is_compared_with_what_is_written_on():
    frame = reads(
        ("r/x", "fraction:0.5", False, "policy", "r", "A"),
        ("r/z", "fraction:0.5", False, "policy", "r", "A"),  # truncated: it has no answer of its own, but what was sampled on has
        ("r/x", "horizon:16", False, "common", "c", "D"),
    )
    written = continuations(
        ("r/x", "fraction:0.5", "policy", "r", "resume", "C"),
        ("r/z", "fraction:0.5", "policy", "r", "resume", None),
        ("r/x", "horizon:16", "common", "c", "answer", "D"),
    )
    table = readings.readings(frame, written, TRACES, "probe", [16], [])
    assert made(table, "probe_resume") == [
        ("x", "r", "policy", "r", None, 0.5, None, "A", "C"),
        ("z", "r", "policy", "r", None, 0.5, None, "A", None),
    ]
    assert made(table, "probe_natural_unfinished") == [("x", "r", "policy", "r", None, 0.5, None, "A", "B")]
    assert made(table, "probe_continuation") == [("x", "r", "common", "c", 16, None, None, "D", "D")]


def test_free_form_answers_are_compared_as_right_or_wrong():
    frame = pl.DataFrame({"mode": ["answer"] * 4, "answer": ["1/2", "7", None, None], "correct": [True, False, False, True]})
    assert readings.stand_in(frame.lazy()).collect()["choice"].to_list() == ["right", "wrong", estimands.NOT_READ, "right"]
    assert frame.select(estimands.right_or_wrong()).to_series().to_list() == ["right", "wrong", None, "right"]
