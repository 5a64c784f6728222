"""The report of what a round trip through text changes, on sequences whose fate is known."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks/retokenisation.py"


@pytest.fixture(scope="module")
def retokenisation():
    spec = importlib.util.spec_from_file_location("retokenisation", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def test_summary_of_known_sequences(retokenisation, real_tokenizer):
    word, halves = ids_of(real_tokenizer, " answer"), [*ids_of(real_tokenizer, " ans"), *ids_of(real_tokenizer, "wer")]
    assert real_tokenizer.decode(halves) == " answer" and len(word) == 1 < len(halves)
    emoji = ids_of(real_tokenizer, "\N{CUNEIFORM SIGN A}")
    assert len(emoji) > 1
    late = [*word * 70, *halves]  # only what follows the first 64 ids changes
    found = retokenisation.summary([word, halves, emoji[:-1], late], real_tokenizer)
    lengths = [1, len(halves), len(emoji) - 1, 70 + len(halves)]
    shifts = [0, len(halves) - 1, abs(len(emoji) - 1 - len(ids_of(real_tokenizer, real_tokenizer.decode(emoji[:-1])))), len(halves) - 1]
    assert found == {
        "sequences": 4,
        "mean_tokens": round(sum(lengths) / 4, 1),
        "changed": 0.75,
        "length": sum(shift > 0 for shift in shifts) / 4,
        "first_64": 0.0,
        "mean_shift": round(sum(shifts) / 4, 3),
        "broken_end": 0.25,
    }


def test_other_tokens_of_the_same_text(retokenisation, real_tokenizer):
    ids = ids_of(real_tokenizer, "Half of thirteen is six and a half; caf\u00e9s close at nine.")
    pairs = retokenisation.splitter(real_tokenizer)
    rng = np.random.default_rng(0)
    assert retokenisation.resplit(ids, pairs, 0.0, rng) == ids
    everywhere = retokenisation.resplit(ids, pairs, 1.0, rng)
    assert len(everywhere) == len(ids) + sum(bool(pairs(i)) for i in ids) > len(ids)
    assert real_tokenizer.decode(everywhere) == real_tokenizer.decode(ids)
    assert retokenisation.again(everywhere, real_tokenizer) == ids


def test_report_has_a_row_for_each_origin_and_repeats_itself(retokenisation, tokenizer):
    texts = ["Reasoning: 3 plus 4 is 7 .", "", "Answer: C"]
    rows = list(retokenisation.report(texts, tokenizer))
    assert [row["ids"] for row in rows] == ["encoded", "cut", "resplit_1", "resplit_1_cut", "resplit_10", "rare_cut", "junk"]
    assert {row["sequences"] for row in rows} == {2}
    assert rows[0]["changed"] == 0
    assert list(retokenisation.report(texts, tokenizer)) == rows
