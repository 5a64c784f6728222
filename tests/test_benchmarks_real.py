"""Benchmarks as they are published: MMLU-Pro, GSM8K and AQuA-RAT, drawn, rendered and graded. Skipped where the files are not on this machine."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path

import polars as pl
import pytest
from helpers.builders import SHARED, benchmark_entry
from test_drawing import largest_remainders

from midtrace import dialects, items, prompts, tables, wording
from midtrace.grading import free_form, grade, grade_math, parse_choice
from midtrace.loaders.draw import turns
from midtrace.prompts import labels


def shared(name: str) -> Path:
    path = SHARED / "data" / name
    if not path.is_file():
        pytest.skip(f"{name} is not on this machine (shared/data/{name})")
    return path


@pytest.fixture(scope="module")
def mmlu_pro() -> items.Benchmark:
    """500 of MMLU-Pro by category."""
    return items.gather(benchmark_entry("mmlu_pro", shared("mmlu_pro_test.parquet"), n=500, strata="proportional"), 0)


# MMLU-Pro.


def test_500_of_mmlu_pro_by_category(mmlu_pro):
    raw = pl.read_parquet(shared("mmlu_pro_test.parquet"))
    counts = dict(sorted(Counter(mmlu_pro.items["stratum"]).items()))
    print(f"MMLU-Pro, 500 of {len(raw)}: " + ", ".join(f"{category} {count}" for category, count in counts.items()))
    sizes = Counter(raw.filter(pl.col("options").list.len() > 1)["category"])
    assert counts == largest_remainders(sizes, 500)
    assert counts["math"] == 56 and counts["history"] == 16 and sum(counts.values()) == 500
    # The five questions with one option are no questions.
    assert mmlu_pro.facts == {"rows": 12032, "usable": 12027, "drawn": 500, "excluded": {"1 option, where 2 to 10 are allowed": 5}}
    single = raw.filter(pl.col("options").list.len() == 1)["question_id"]
    assert mmlu_pro.excluded["item_id"].to_list() == [f"toy/{number}" for number in single]
    # Every item is valid, and its gold is that of the file.
    assert tables.conform(mmlu_pro.items, tables.Items, "items").equals(mmlu_pro.items)
    assert all(items.problem(row) is None for row in mmlu_pro.items.iter_rows(named=True))
    golds = dict(raw.select(pl.format("toy/{}", "question_id"), pl.col("options").list.get(pl.col("answer_index"))).iter_rows())
    for row in mmlu_pro.items.iter_rows(named=True):
        assert row["options"][labels(10).index(row["answer"])] == golds[row["item_id"]].strip()


@pytest.mark.parametrize("shuffle", [False, True])
def test_all_of_mmlu_pro_with_two_to_ten_options(shuffle):
    found = items.gather(benchmark_entry("mmlu_pro", shared("mmlu_pro_test.parquet"), shuffle=shuffle), 0).items
    sizes = Counter(found["options"].list.len())
    assert set(sizes) == set(range(2, 11)) and sizes[10] == 9981 and sizes[2] == 2
    golds = Counter(found.filter(pl.col("options").list.len() == 10)["answer"])
    assert set(golds) == set("ABCDEFGHIJ")
    # An order of the item's own leaves no letter with more than its share; the file's has one a third above it.
    expected = sizes[10] / 10
    assert max(abs(count - expected) for count in golds.values()) / expected < (0.1 if shuffle else 1)


def test_a_draw_by_category_grows(mmlu_pro):
    more = items.gather(benchmark_entry("mmlu_pro", shared("mmlu_pro_test.parquet"), n=600, strata="proportional"), 0)
    assert more.items[:500].equals(mmlu_pro.items)


def test_proportional_draws_of_mmlu_pro_are_largest_remainders_but_for_an_item():
    raw = pl.read_parquet(shared("mmlu_pro_test.parquet")).filter(pl.col("options").list.len() > 1)
    sizes = Counter(raw["category"])
    drawn: Counter[str] = Counter(dict.fromkeys(sizes, 0))
    same = 0
    for n, category in enumerate(islice(turns(sizes, "proportional"), 1500), 1):
        drawn[category] += 1
        wanted = largest_remainders(sizes, n)
        assert max(abs(drawn[name] - wanted[name]) for name in sizes) <= 1
        assert all(abs(drawn[name] - n * sizes[name] / len(raw)) < 1 for name in sizes)
        same += drawn == wanted
    assert same > 1300


@pytest.mark.parametrize(("name", "dialect"), [("qwen3", "qwen3"), ("gptoss", "gpt_oss")])
def test_prompts_of_mmlu_pro_on_real_vocabularies(vocabulary, mmlu_pro, name, dialect):
    tokenizer, record = vocabulary(name), dialects.get(dialect)
    texts = wording.prompt(benchmark_entry("mmlu_pro", "a.parquet"), dialect)
    arm = {"effort": "low"} if record.needs_effort else {"suffix": "Be concise."}
    seen = set()
    for row in mmlu_pro.items.iter_rows(named=True):
        ids = prompts.render(row, arm, texts, record, tokenizer)
        text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        # Its own text whole, between its own markers and no others.
        user = prompts.user_text(row, arm, texts)
        assert record.user.replace("{text}", user) in text and text.endswith(record.assistant)
        assert user.startswith(row["question"]) and all(
            f"\n{label}. {option}" in user for label, option in zip("ABCDEFGHIJ", row["options"], strict=False)
        )
        assert "Answer: X" in user and ("Be concise." in user) is (dialect == "qwen3")
        control = {"qwen3": "<|im_start|>", "gptoss": "<|start|>"}[name]
        assert ids.count(tokenizer.convert_tokens_to_ids(control)) == {"qwen3": 2, "gptoss": 3}[name]
        seen.add(tuple(ids))
    assert len(seen) == 500


STATED = [
    "Answer: {label}. {text}",
    "The answer is ({label}) {text}.",
    r"\boxed{{{label}}}",
    "{text}\n\nAnswer: {label}",
    "Answer: {label}\n\n{text}",
]


def test_every_gold_of_mmlu_pro_is_read_in_every_statement():
    found = items.gather(benchmark_entry("mmlu_pro", shared("mmlu_pro_test.parquet")), 0).items
    counts: Counter[tuple[str, bool]] = Counter()
    for row in found.iter_rows(named=True):
        names = labels(len(row["options"]))
        words = {"label": row["answer"], "text": row["options"][names.index(row["answer"])]}
        assert all(parse_choice(form.format(**words), names) == row["answer"] for form in STATED), row["item_id"]
        for form in (r"\boxed{{\text{{{label}. {text}}}}}", r"\boxed{{{label}) {text}}}", "Answer: {label}\n\\boxed{{{text}}}"):
            counts[form, parse_choice(form.format(**words), names) == row["answer"]] += 1
    # One option has a brace without its partner, so that its box is never closed; another begins with an operator and a capital letter.
    assert sorted(count for (_, right), count in counts.items() if not right) == [1, 2, 117]
    # A box with the text of the option after the letter: mathematics in it no longer takes the letter's place (11,717 before). What is left are
    # options that are, or begin like, a letter and its text, such as an article "A".
    assert counts["Answer: {label}\n\\boxed{{{text}}}", True] == 11_910


# GSM8K.


REWRITES = [
    "{gold}",
    "${gold}",
    r"\${gold}.00",
    "{gold:,}",
    "{gold}.",
    "{gold} dollars",
    "0{gold}",
    "**{gold}**",
    r"$\boxed{{{gold}}}$",
    r"The total is \boxed{{{gold:,}}}.",
    "She has {gold} eggs.\n\n#### {gold}",
    "The final answer is **{gold}**.",
    "Answer: {gold}",
    "The answer is {gold} apples, because 1 + 1 = 2.",
]


def test_every_gold_of_gsm8k():
    found = items.gather(benchmark_entry("gsm8k", shared("gsm8k_test.jsonl"), "math"), 0)
    assert found.facts == {"rows": 1319, "usable": 1319, "drawn": 1319, "excluded": {}}
    golds = found.items["answer"].to_list()
    assert all(re.fullmatch(r"-?\d+", gold) for gold in golds)
    for gold, neighbour in zip(golds, [*golds[1:], golds[0]], strict=True):
        for rewrite in REWRITES:
            text = rewrite.format(gold=abs(int(gold)))
            text = text if not gold.startswith("-") else text.replace(gold[1:], gold)
            assert grade_math(text, gold), text
            assert grade_math(text, neighbour) is (gold == neighbour), (text, neighbour)


def test_solutions_of_gsm8k_are_graded_right():
    raw = pl.read_ndjson(shared("gsm8k_test.jsonl"))
    found = items.gather(benchmark_entry("gsm8k", shared("gsm8k_test.jsonl"), "math"), 0).items
    by_question = {row["question"]: row for row in found.iter_rows(named=True)}
    for row in raw.iter_rows(named=True):
        assert (
            grade(row["answer"], by_question[row["question"].strip()], []) == (row["answer"].split("#### ")[1].replace(",", ""), True)
            or (grade(row["answer"], by_question[row["question"].strip()], [])[1])
        )


def test_solutions_of_gsm8k_without_their_last_line_are_read_by_the_rule_of_last_resort():
    golds = [row["answer"].rpartition("\n####")[::2] for row in pl.read_ndjson(shared("gsm8k_test.jsonl")).iter_rows(named=True)]
    read = [(free_form.read(solution), gold.strip()) for solution, gold in golds]
    right = sum(reading.answer is not None and free_form.equal(reading.answer, gold) for reading, gold in read)
    print(f"GSM8K: {right} of {len(read)} golds in the last line, {sum(reading.answer is None for reading, _ in read)} unread")
    assert right >= 1125  # 1,025 before, when sentences were read as products


# AQuA-RAT.


def test_all_of_aqua_rat():
    found = items.gather(benchmark_entry("aqua_rat", shared("aqua_rat_test.jsonl")), 0)
    assert found.facts == {"rows": 254, "usable": 254, "drawn": 254, "excluded": {}}
    assert found.items["item_id"].n_unique() == 254
    assert set(found.items["options"].list.len()) == {5}
    raw = pl.read_ndjson(shared("aqua_rat_test.jsonl"))
    golds = {row["question"].strip(): row["options"]["ABCDE".index(row["correct"])] for row in raw.iter_rows(named=True)}
    for row in found.items.iter_rows(named=True):
        option = row["options"][labels(5).index(row["answer"])]
        assert re.sub(r"^([A-E]\s*\))+", "", golds[row["question"]]).strip() == option
        assert not any(re.match(r"[A-E]\s*\)", other) for other in row["options"])


def test_rationales_of_aqua_rat_state_their_answer_or_none():
    """Texts by people, with the answer stated in a hundred ways: what is read is nearly always the gold one."""
    raw = pl.read_ndjson(shared("aqua_rat_test.jsonl"))
    read = [(parse_choice(row["rationale"], list("ABCDE")), row["correct"]) for row in raw.iter_rows(named=True)]
    stated = [(found, gold) for found, gold in read if found is not None]
    right = sum(found == gold for found, gold in stated)
    print(f"AQuA-RAT rationales: {len(stated)} of {len(read)} state an option, {right} the right one")
    assert len(stated) > 230 and right >= len(stated) - 1
