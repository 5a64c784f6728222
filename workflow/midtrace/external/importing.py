"""Other people's traces: from logs of finished runs to raw traces of a study, from where everything runs as for own traces.

Usage
-----
::

    python -m midtrace import items  --format lm-eval samples_law_*.jsonl samples_math_*.jsonl --output data/items.jsonl
    python -m midtrace import traces --format inspect log.eval --config config/studies/mine.yaml --model M --benchmark B --arm A

``items`` writes a file for ``loader: file``. ``traces`` needs the items table of the study (``snakemake items``) and writes
``results/{study}/raw/traces/{model}/{benchmark}/{arm}/r{replicate}.parquet`` for every replicate of the study. Both say what they left out. Formats:
``lm-eval`` (sample logs), ``inspect`` (.json or .eval logs), ``vllm`` (request outputs as JSON Lines), ``plain`` (JSON Lines or Parquet). See
docs/importing.md.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import config as study_config
from midtrace import dialects, prompts, tables
from midtrace.engines import GenerateRequest, Generation
from midtrace.errors import WRITABLE, InputError
from midtrace.external.formats import FORMATS, read_items, read_runs
from midtrace.external.runs import LeftOut, Run, qualified, summary
from midtrace.generation import trace_row
from midtrace.vocabulary import load_tokenizer, tokenizer_hash

UNKNOWN_SEED = -1
MALFORMED = 0.5  # a larger share of malformed outputs means the wrong dialect or tokenizer


def import_traces(
    runs: Sequence[Run], items: pl.DataFrame, settings: Mapping[str, Any], tokenizer: Any, where: object
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Raw traces of one arm and replicate from foreign runs.

    Parameters
    ----------
    runs
        Runs as read by :func:`midtrace.external.formats.read_runs`, of any items and replicates; those of this study's items and of the replicate in
        ``settings`` are taken. Their items are called ``{task}/{id}``, or by their id alone where the study knows none of these and the runs
        are of one task.
    items
        The items table of the study.
    settings
        See :func:`midtrace.config.traces_settings`.
    tokenizer
        The model's tokenizer.
    where
        Name of the source, for messages.

    Returns
    -------
    tuple
        A raw traces table, and counts: ``taken``, ``token_exact``, ``unknown_items`` (runs of items that the study does not have),
        ``missing_items`` (items of the study without a run).

    Raises
    ------
    InputError
        If an id is not in the vocabulary, the decoded ids are not the recorded text, the prompt does not end where the dialect's turn of
        the model begins, most outputs are malformed in this dialect, an item comes twice, or nothing is left.

    Notes
    -----
    With output and prompt ids, all verified, a trace is ``token_exact``. Text is encoded: its lengths and prefixes are reconstructions, and
    ``token_exact`` is false. A run without prompt ids gets the prompt that the config renders. ``seed`` is the recorded one, or -1:
    replicates of different arms then share nothing but their number.
    """
    model, benchmark = settings["model"], settings["items"]["benchmark"]["name"]
    dialect = dialects.get(model["dialect"])
    by_id = {item["item_id"]: item for item in items.iter_rows(named=True)}
    name_of = _naming(runs, by_id, benchmark)
    rows: dict[str, dict[str, Any]] = {}
    unknown: list[str] = []
    for run in runs:
        if run.replicate != settings["replicate"]:
            continue
        name = name_of(run)
        if name not in by_id:
            unknown.append(name)
            continue
        if name in rows:
            raise InputError(where, f"item {name}, replicate {run.replicate}", "occurs twice", "each item once per replicate: one log per task")
        if run.output_ids is None and run.text is None and run.reasoning is None:
            raise InputError(where, f"item {name}", "has neither ids nor text", "an output")
        rendered = prompts.render(by_id[name], settings["arm"], settings["prompt"], dialect, tokenizer)
        exact = run.output_ids is not None and run.prompt_ids is not None
        if run.output_ids is not None:
            _verify(run, dialect, tokenizer, f"{where}: {name}")
        output_ids = list(run.output_ids) if run.output_ids is not None else _encode(run, dialect, tokenizer)
        request = GenerateRequest(tuple(run.prompt_ids or rendered), model["max_tokens"], UNKNOWN_SEED if run.seed is None else run.seed)
        row = trace_row(name, request, Generation(output_ids, run.finish_reason), settings, dialect, tokenizer)
        rows[name] = {**row, "token_exact": exact}
    if not rows:
        held = f"{len(unknown)} runs of items that the study does not have" + (f", the first of {unknown[0]}" if unknown else "")
        allowed = f"ids as in the items table, such as {items['item_id'][0]}; --task says what a log's task is called there"
        raise InputError(where, f"replicate {settings['replicate']}", f"no run of this study ({held})", allowed)
    malformed = [row for row in rows.values() if row["status"] == "malformed"]
    if len(malformed) > MALFORMED * len(rows):
        problem = f"{len(malformed)} of {len(rows)} outputs are malformed ({malformed[0]['problem']})"
        raise InputError(where, f"dialect {dialect.name}", problem, "the model's own dialect and tokenizer")
    frame = tables.frame_of([rows[name] for name in items["item_id"] if name in rows], tables.RawTraces)
    counts = {"taken": len(rows), "token_exact": int(frame["token_exact"].sum())}
    return frame, {**counts, "unknown_items": len(unknown), "missing_items": len(items) - len(rows)}


def _naming(runs: Sequence[Run], by_id: Mapping[str, Any], benchmark: str) -> Callable[[Run], str]:
    """How the items of these runs are called in the study: one way for all of them."""

    def full(run: Run) -> str:
        return _within(benchmark, qualified(run.task, run.item))

    def bare(run: Run) -> str:
        return _within(benchmark, run.item)

    one_task = len({run.task for run in runs}) == 1
    return bare if one_task and not any(full(run) in by_id for run in runs) else full


def _within(benchmark: str, name: str) -> str:
    return name if name.startswith(f"{benchmark}/") else f"{benchmark}/{name}"


def _verify(run: Run, dialect: dialects.Dialect, tokenizer: Any, where: str) -> None:
    """Ids must be of this vocabulary, say what the recorded text says, and follow a prompt that opens the model's turn."""
    size = len(tokenizer)
    for name, ids in (("output_ids", run.output_ids), ("prompt_ids", run.prompt_ids)):
        foreign = [i for i in ids or () if not 0 <= i < size]
        if foreign:
            raise InputError(where, name, f"holds {foreign[0]}, which is not in the vocabulary", f"0 to {size - 1}")
    if run.text is not None:
        said = run.text.strip()
        decoded = {tokenizer.decode(list(run.output_ids or ()), skip_special_tokens=skip).strip() for skip in (True, False)}
        if said not in decoded:
            raise InputError(where, "output_ids", "decode to another text than the recorded one", "ids and text of one output and tokenizer")
    if run.prompt_ids is not None:
        opening = dialect.assistant + (dialect.opening if dialect.opening_in_prompt else "")
        # The last token may hold more than the text (a newline merged with another), so texts are compared.
        if not tokenizer.decode(list(run.prompt_ids)[-16:]).rstrip().endswith(opening.rstrip()):
            raise InputError(
                where, "prompt_ids", f"do not end with the opening of the model's turn {opening!r}", f"prompts of dialect {dialect.name}"
            )


def _encode(run: Run, dialect: dialects.Dialect, tokenizer: Any) -> list[int]:
    """Ids for a text: the markers as the dialect has them, everything else as the tokenizer encodes it.

    As with ids, the output ends at the first token, here in words, that ends the turn or begins another.
    """
    reasoning, (answer, ended) = run.reasoning, _before_end(run.text or "", dialect, tokenizer)
    if reasoning is None:
        body = answer.lstrip().removeprefix(dialect.opening)
        reasoning, closed, answer = body.partition(dialect.closing_marker)
    else:
        closed = dialect.closing_marker if answer or run.finish_reason == "stop" else ""
    ids = [] if dialect.opening_in_prompt else [dialects.token_id(tokenizer, dialect.opening)]
    ids += prompts.plain_ids(reasoning, tokenizer)
    if closed:
        ids += [dialects.token_id(tokenizer, dialect.closing_marker), *prompts.plain_ids(answer, tokenizer)]
    if ended or (closed and run.finish_reason == "stop"):
        ids.append(dialects.stop_ids(tokenizer, dialect)[0])
    return ids


def _before_end(text: str, dialect: dialects.Dialect, tokenizer: Any) -> tuple[str, bool]:
    """A text up to where an ending token stands in it, and whether one does."""
    words = [tokenizer.decode([i]) for i in dialects.ending_ids(tokenizer, dialect)]
    places = [text.find(word) for word in words if word and word in text]
    return (text[: min(places)], True) if places else (text, False)


@dataclass(frozen=True)
class Imported:
    """What an import has written, and what it has not.

    Attributes
    ----------
    replicates
        Replicate -> counts, see :func:`import_traces`.
    left_out
        Samples of the logs that hold no run.
    beyond
        Runs of replicates that the study does not have.
    """

    replicates: dict[int, dict[str, int]]
    left_out: list[LeftOut]
    beyond: int


def run(
    sources: Sequence[str | Path],
    kind: str,
    config_file: str | Path,
    model: str,
    benchmark: str,
    arm: str,
    results: str | Path = "results",
    task: str | None = None,
    chosen: str | None = None,
) -> Imported:
    """Write the raw traces of an arm for every replicate of the study.

    Parameters
    ----------
    sources, kind, task, chosen
        Logs, their format, task and filter, see :func:`midtrace.external.formats.read_runs`.
    config_file
        The study.
    model, benchmark, arm
        Which of the study's the runs are.
    results
        The folder of results.

    Raises
    ------
    InputError
        For an unknown name, a missing items table, an existing file, logs that do not fit. Nothing is written then.
    """
    config = study_config.load(config_file)
    defined = (("models", model, config["models"]), ("benchmarks", benchmark, config["benchmarks"]), ("arms", arm, config["arms"]))
    for field, name, known in defined:
        if name not in known:
            raise InputError(config_file, field, f"{name!r} is not defined", known)
    folder = Path(results) / config["study"]
    items_file = folder / "items" / f"{benchmark}.parquet"
    where = ", ".join(Path(source).name for source in sources)
    read = read_runs(sources, kind, task, chosen)
    replicates = range(study_config.replicates(config, benchmark))
    beyond = sum(run.replicate not in replicates for run in read.taken)
    reasons = dict(sorted(Counter(sample.reason for sample in read.left_out).items()))
    made: dict[int, tuple[Path, pl.DataFrame, dict[str, Any], dict[str, int]]] = {}
    for replicate in replicates:
        key = tables.TableKey(model, benchmark, arm, replicate)
        settings, output = study_config.traces_settings(config, *key), Path(key.path(f"{folder}/raw/traces"))
        if output.exists():
            raise InputError(output, "file", "exists already", "no file: move it away to import in its place")
        tokenizer = load_tokenizer(settings["model"])
        frame, counts = import_traces(read.taken, tables.read(items_file, tables.Items, settings["items"]), settings, tokenizer, where)
        source = {"format": kind, "sources": where, "left_out": reasons, "other_replicates": beyond, **counts}
        facts = {"tokenizer": tokenizer_hash(tokenizer), "engine": "imported", "imported": source}
        made[replicate] = output, frame, tables.metadata("traces", config["study"], settings, **facts), counts
    for output, frame, meta, _ in made.values():
        tables.write(frame, output, tables.RawTraces, meta)
    return Imported({replicate: counts for replicate, (*_, counts) in made.items()}, read.left_out, beyond)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m midtrace import", description="Bring finished runs of other tools into a study.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("items", "write an items file for `loader: file` from logs"), ("traces", "write raw traces of an arm from logs")):
        command = commands.add_parser(name, help=text)
        command.add_argument("sources", nargs="+", help="log files")
        command.add_argument("--format", required=True, choices=FORMATS, dest="kind")
        command.add_argument("--task", help="inspect, lm-eval: the task of these logs, where they do not name it as the items table does")
        command.add_argument("--filter", dest="chosen", help="lm-eval: the filter whose lines are read (default: the first one of a log)")
        if name == "items":
            command.add_argument("--output", required=True, help="a .jsonl file")
        else:
            for option, meaning in (("config", "the study"), ("model", "name in the study"), ("benchmark", "name in the study"), ("arm", "name")):
                command.add_argument(f"--{option}", required=True, help=meaning)
    options = parser.parse_args(arguments)
    logs = {"sources": options.sources, "kind": options.kind, "task": options.task, "chosen": options.chosen}
    try:
        left_out = _import_items(options.output, **logs) if options.command == "items" else _import_traces(options, **logs)
    except InputError as error:
        print(f"midtrace: error: {error}", file=sys.stderr)
        return 1
    if left_out:
        print(summary(left_out))
    return 0


def _import_items(output: str, **logs: Any) -> list[LeftOut]:
    read = read_items(**logs)
    if not read.taken:
        why = f" ({summary(read.left_out)})" if read.left_out else ""
        raise InputError(", ".join(logs["sources"]), "samples", f"hold no item{why}", "at least 1")
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in read.taken)
    try:
        Path(output).write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(output, "file", f"cannot be written ({error.strerror})", WRITABLE) from None
    print(f"{len(read.taken)} items: {output}")
    return read.left_out


def _import_traces(options: argparse.Namespace, **logs: Any) -> list[LeftOut]:
    imported = run(config_file=options.config, model=options.model, benchmark=options.benchmark, arm=options.arm, **logs)
    for replicate, counts in imported.replicates.items():
        print(f"replicate {replicate}: " + ", ".join(f"{key} {value}" for key, value in counts.items()))
    if imported.beyond:
        print(f"{imported.beyond} runs of replicates that the study does not have")
    return imported.left_out
