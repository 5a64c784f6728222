"""Other people's traces: from logs of finished runs to raw traces of a study, from where everything runs as for own traces.

Usage
-----
::

    python -m midtrace import items  --format lm-eval samples.jsonl --output data/items.jsonl
    python -m midtrace import traces --format inspect log.eval --config config/studies/mine.yaml --model M --benchmark B --arm A

``items`` writes a file for ``loader: file``. ``traces`` needs the items table of the study (``snakemake items``) and writes
``results/{study}/raw/traces/{model}/{benchmark}/{arm}/r{replicate}.parquet`` for every replicate of the study that the logs hold. Formats:
``lm-eval`` (sample logs), ``inspect`` (.json or .eval logs), ``vllm`` (request outputs as JSON Lines), ``plain`` (JSON Lines or Parquet). See
docs/importing.md.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import config as study_config
from midtrace import dialects, prompts, tables
from midtrace.engines import GenerateRequest, Generation
from midtrace.errors import InputError
from midtrace.external.formats import FORMATS, Run, read_items, read_runs
from midtrace.generation import trace_row
from midtrace.vocabulary import load_tokenizer, tokenizer_hash

UNKNOWN_SEED = -1
MALFORMED = 0.5  # a larger share of malformed outputs means the wrong dialect or tokenizer


def import_traces(
    runs: Iterable[Run], items: pl.DataFrame, settings: Mapping[str, Any], tokenizer: Any, where: object
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Raw traces of one arm and replicate from foreign runs.

    Parameters
    ----------
    runs
        Runs as read by :func:`midtrace.external.formats.read_runs`, of any items and replicates; those of this study's items and of the replicate in
        ``settings`` are taken.
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
        A raw traces table, and counts: ``taken``, ``token_exact``, ``unknown_items`` (runs of items that the study does not have).

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
    rows: dict[str, dict[str, Any]] = {}
    unknown = 0
    for run in runs:
        if run.replicate != settings["replicate"]:
            continue
        name = run.item if run.item.startswith(f"{benchmark}/") else f"{benchmark}/{run.item}"
        if name not in by_id:
            unknown += 1
            continue
        if name in rows:
            raise InputError(where, f"item {name}, replicate {run.replicate}", "occurs twice", "each item once per replicate")
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
        held = f"{unknown} runs of items that the study does not have"
        raise InputError(where, f"replicate {settings['replicate']}", f"no run of this study ({held})", "ids as in the items table")
    malformed = [row for row in rows.values() if row["status"] == "malformed"]
    if len(malformed) > MALFORMED * len(rows):
        problem = f"{len(malformed)} of {len(rows)} outputs are malformed ({malformed[0]['problem']})"
        raise InputError(where, f"dialect {dialect.name}", problem, "the model's own dialect and tokenizer")
    frame = tables.frame_of([rows[name] for name in items["item_id"] if name in rows], tables.RawTraces)
    return frame, {"taken": len(rows), "token_exact": int(frame["token_exact"].sum()), "unknown_items": unknown}


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
    """Ids for a text: the markers as the dialect has them, everything else as the tokenizer encodes it."""
    reasoning, answer = run.reasoning, run.text or ""
    if reasoning is None:
        body = answer.lstrip().removeprefix(dialect.opening)
        reasoning, closed, answer = body.partition(dialect.closing_marker)
    else:
        closed = dialect.closing_marker if answer or run.finish_reason == "stop" else ""
    ids = [] if dialect.opening_in_prompt else [dialects.token_id(tokenizer, dialect.opening)]
    ids += prompts.plain_ids(reasoning, tokenizer)
    if closed:
        stops = [text for text in dialect.stop if answer.rstrip().endswith(text)]
        ids += [dialects.token_id(tokenizer, dialect.closing_marker)]
        ids += prompts.plain_ids(answer.rstrip().removesuffix(stops[0]) if stops else answer, tokenizer)
        if run.finish_reason == "stop":
            ids.append(dialects.stop_ids(tokenizer, dialect)[0])
    return ids


def run(
    sources: Sequence[str | Path], kind: str, config_file: str | Path, model: str, benchmark: str, arm: str, results: str | Path = "results"
) -> dict[int, dict[str, int]]:
    """Write the raw traces of an arm for every replicate of the study.

    Parameters
    ----------
    sources, kind
        Logs and their format, a key of :data:`midtrace.external.formats.FORMATS`.
    config_file
        The study.
    model, benchmark, arm
        Which of the study's the runs are.
    results
        The folder of results.

    Returns
    -------
    dict
        Replicate -> counts, see :func:`import_traces`.

    Raises
    ------
    InputError
        For an unknown name, a missing items table, an existing file, logs that do not fit.
    """
    config = study_config.load(config_file)
    chosen = (("models", model, config["models"]), ("benchmarks", benchmark, config["benchmarks"]), ("arms", arm, config["arms"]))
    for field, name, known in chosen:
        if name not in known:
            raise InputError(config_file, field, f"{name!r} is not defined", known)
    folder = Path(results) / config["study"]
    items_file = folder / "items" / f"{benchmark}.parquet"
    where = ", ".join(Path(source).name for source in sources)
    runs = list(read_runs(sources, kind))
    found = {}
    for replicate in range(study_config.replicates(config, benchmark)):
        key = tables.TableKey(model, benchmark, arm, replicate)
        settings, output = study_config.traces_settings(config, *key), Path(key.path(f"{folder}/raw/traces"))
        if output.exists():
            raise InputError(output, "file", "exists already", "no file: move it away to import in its place")
        tokenizer = load_tokenizer(settings["model"])
        frame, counts = import_traces(runs, tables.read(items_file, tables.Items, settings["items"]), settings, tokenizer, where)
        facts = {"tokenizer": tokenizer_hash(tokenizer), "engine": "imported", "imported": {"format": kind, "sources": where, **counts}}
        tables.write(frame, output, tables.RawTraces, tables.metadata("traces", config["study"], settings, **facts))
        found[replicate] = counts
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m midtrace import", description="Bring finished runs of other tools into a study.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("items", "write an items file for `loader: file` from logs"), ("traces", "write raw traces of an arm from logs")):
        command = commands.add_parser(name, help=text)
        command.add_argument("sources", nargs="+", help="log files")
        command.add_argument("--format", required=True, choices=sorted(FORMATS), dest="kind")
        if name == "items":
            command.add_argument("--output", required=True, help="a .jsonl file")
        else:
            for option, meaning in (("config", "the study"), ("model", "name in the study"), ("benchmark", "name in the study"), ("arm", "name")):
                command.add_argument(f"--{option}", required=True, help=meaning)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "items":
            rows = read_items(chosen.sources, chosen.kind)
            Path(chosen.output).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
            print(f"{len(rows)} items: {chosen.output}")
        else:
            for replicate, counts in run(chosen.sources, chosen.kind, chosen.config, chosen.model, chosen.benchmark, chosen.arm).items():
                print(f"replicate {replicate}: " + ", ".join(f"{key} {value}" for key, value in counts.items()))
    except InputError as error:
        print(f"midtrace: error: {error}", file=sys.stderr)
        return 1
    return 0
