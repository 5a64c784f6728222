"""What an engine has computed, kept beside the output of a job: the same request is never paid for twice.

A result belongs to its request: token ids, seed, sampling, candidates. So a killed job goes on where it was, and a config that asks for more
(items, horizons, contexts) computes what is new and nothing else, whatever else of it has changed. Deleting the folder costs time only.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import dataframely as dy
import numpy as np
import polars as pl

from midtrace import codedigest, engines, tables
from midtrace.engines import Engine, GenerateRequest, Generation, Sampling, ScoreRequest
from midtrace.errors import InputError

# Of a model's settings: what decides the result of a request. The rest (dialect, sampling, token cap, ...) is in the request.
MODEL = ("source", "revision", "weights", "dtype", "engine", "context")
ENGINE_CODE = Path(engines.__file__).parent


class StoredEngine:
    """An engine that keeps what it computes; the model is loaded when something is missing.

    Parameters
    ----------
    output
        The file that the results are for. They are kept in a hidden folder beside it, one for each model and each state of the engine's code.
    model
        Settings of the model; see :func:`midtrace.engines.load`.
    load
        Gives the engine itself. Called once, when something is missing, with the folder and the number of requests that are.
    """

    def __init__(self, output: str | Path, model: Mapping[str, Any], load: Callable[[Path, int], Engine]):
        name = self._name = model["engine"]
        code = codedigest.digest(ENGINE_CODE / f"{name}.py", name)
        self.identity = {"model": {key: model[key] for key in MODEL if key in model}, "code": code}
        digest = hashlib.sha256(repr(sorted(tables.flatten(self.identity))).encode()).hexdigest()[:12]
        self.folder = Path(output).parent / f".{Path(output).name}.{digest}.store"
        self._load = load
        self._engine: Engine | None = None
        self._generations = _Kept(self.folder / "generations", tables.StoredGenerations, self.identity)
        self._scores = _Kept(self.folder / "scores", tables.StoredScores, self.identity)

    def _loaded(self, missing: int) -> Engine:
        if self._engine is None:
            self._engine = self._load(self.folder, missing)
        return self._engine

    @property
    def facts(self) -> dict[str, Any]:
        """Engine name, version, dtype and device of all results that were used; values that differ between them are joined by ``;``."""
        found: dict[str, dict[str, None]] = {}
        for facts in (*self._generations.facts, *self._scores.facts):
            for key, value in facts.items():
                found.setdefault(key, {})[str(value)] = None
        return {key: "; ".join(values) for key, values in found.items()} or {"engine": self._name}

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        """See :meth:`midtrace.engines.Engine.generate`."""
        asked = repr(("generate", vars(sampling), sorted(stop_ids))).encode()
        names = [_digest(asked, repr((r.max_tokens, r.seed)).encode(), r.prompt_ids) for r in requests]
        missing = {name: request for name, request in zip(names, requests, strict=True) if request.max_tokens and name not in self._generations}
        if missing:
            engine = self._loaded(len(missing))
            done = engine.generate(list(missing.values()), sampling, stop_ids)
            rows = [{"request": name, "ids": g.ids, "finish_reason": g.finish_reason} for name, g in zip(missing, done, strict=True)]
            self._generations.add(rows, engine.facts)
        return [self._generation(name) if request.max_tokens else Generation([], "length") for name, request in zip(names, requests, strict=True)]

    def _generation(self, name: str) -> Generation:
        row = self._generations.row(name)
        return Generation(row["ids"], row["finish_reason"])

    def score(self, requests: Sequence[ScoreRequest], candidates: Sequence[int]) -> list[np.ndarray]:
        """See :meth:`midtrace.engines.Engine.score`."""
        asked = repr(("score", list(candidates))).encode()
        names = [[_digest(asked, b"", prefix) for prefix in request.prefixes()] for request in requests]
        cuts = [
            {name: cut for name, cut in zip(own, request.cuts, strict=True) if name not in self._scores}
            for own, request in zip(names, requests, strict=True)
        ]
        missing = [(wanted, request) for wanted, request in zip(cuts, requests, strict=True) if wanted]
        if missing:
            engine = self._loaded(len(missing))
            done = engine.score([ScoreRequest(request.trunk, list(wanted.values()), request.suffix) for wanted, request in missing], candidates)
            rows = {name: row.tolist() for (wanted, _), scores in zip(missing, done, strict=True) for name, row in zip(wanted, scores, strict=True)}
            self._scores.add([{"request": name, "logprobs": logprobs} for name, logprobs in rows.items()], engine.facts)
        return [np.array([self._scores.row(name)["logprobs"] for name in own]) for own in names]


def load(model: Mapping[str, Any], threads: int, machine: Mapping[str, Any], service: Mapping[str, Any] | None = None) -> Engine:
    """An engine of this process, or the server that ``service`` keeps for the run (:func:`midtrace.serving.reach`)."""
    if not service:
        return engines.load(model, threads, machine)
    from midtrace import serving

    return serving.reach(model, threads=threads, machine=machine, **service)


def engine_of(
    output: str,
    model: Mapping[str, Any],
    threads: int,
    machine: Mapping[str, Any],
    receipts: Sequence[str] = (),
    service: Mapping[str, Any] | None = None,
) -> StoredEngine:
    """The engine of the job that writes a table: loaded when needed, or, where item shards have done the work, not at all.

    Parameters
    ----------
    output
        The table.
    model, threads, machine, service
        See :func:`load`.
    receipts
        Of the shards that have worked for the table; none where this job does all.

    Raises
    ------
    InputError
        Later, when something is asked that the shards have not left: their store was deleted. The receipts are withdrawn, so that the next run
        does it again.
    """

    def loaded(folder: Path, missing: int) -> Engine:
        if not receipts:
            return load(model, threads, machine, service)
        for receipt in receipts:
            Path(receipt).unlink(missing_ok=True)
        raise InputError(folder, "requests", f"{missing} that item shards had done are not there any more", "run again: the shards do them anew")

    return StoredEngine(output, model, loaded)


def _digest(asked: bytes, own: bytes, ids: Sequence[int]) -> str:
    return hashlib.sha256(asked + own + np.asarray(ids, np.int32).tobytes()).hexdigest()[:32]


class _Kept:
    """Results of one kind by the digest of their request: files that are whole or not there, and an index of their rows."""

    def __init__(self, folder: Path, schema: type[dy.Schema], identity: Mapping[str, Any]):
        self.folder, self.schema, self.identity = folder, schema, identity
        self.facts: list[dict[str, Any]] = []
        self._frames: list[pl.DataFrame] = []
        self._places: dict[str, tuple[int, int]] = {}
        for path in sorted(folder.glob("*.parquet")):
            try:
                meta = tables.check_identity(path, identity)
                self._index(tables.read(path, schema), meta.get("facts", {}))
            except InputError:
                with suppress(OSError):  # another job was quicker, or may not
                    path.unlink()  # what cannot be read is computed again
        if self._places:
            print(f"{len(self._places)} finished requests found in {folder}")

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def row(self, name: str) -> dict[str, Any]:
        """The result of a request."""
        frame, row = self._places[name]
        return self._frames[frame].row(row, named=True)

    def add(self, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> None:
        """Keep results: on disk, then in the index."""
        frame = tables.frame_of(rows, self.schema)
        # A name of its own: shards of one arm may be written at once.
        meta = tables.metadata("store", "", self.identity, facts=dict(facts))
        tables.write(frame, self.folder / f"{len(self._frames):06d}-{uuid4().hex[:8]}.parquet", self.schema, meta)
        self._index(frame, dict(facts))

    def _index(self, frame: pl.DataFrame, facts: dict[str, Any]) -> None:
        self._places |= {name: (len(self._frames), row) for row, name in enumerate(frame["request"])}
        self._frames.append(frame)
        if facts not in self.facts:
            self.facts.append(facts)
