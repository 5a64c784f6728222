"""The rows of a study, what a run is worth under a readout, and the mean over items: what the oracle is made of."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Results = dict[frozenset[tuple[str, Any]], float]

TERMINATION = ("both_complete", "treatment_complete", "reference_complete", "both_active")
PROBED = ("terminal", "symmetric_own", "symmetric")
UNREAD = "(unparsed)"


def key(**cells: Any) -> frozenset[tuple[str, Any]]:
    """The name of an estimate: its cells that are not empty."""
    return frozenset((name, value) for name, value in cells.items() if value is not None)


def item_mean(values: Iterable[tuple[Hashable, float | None]]) -> float | None:
    """Replicates averaged within item, items averaged; ``values`` are (item, value), None where the value does not count.

    sum_i mean_r(value x indicator) / sum_i mean_r(indicator), where the mean over r runs over all entries of the item.
    """
    by_item: dict[Hashable, list[float | None]] = defaultdict(list)
    for item, value in values:
        by_item[item].append(value)
    above = math.fsum(math.fsum(v for v in entries if v is not None) / len(entries) for entries in by_item.values())
    below = math.fsum(sum(v is not None for v in entries) / len(entries) for entries in by_item.values())
    return above / below if below else None


Reading = tuple[Hashable, Any, Any, bool, bool]  # item, what the reading says, what the other says, reading right, other right


class Study:
    """The rows of one model and benchmark.

    Parameters
    ----------
    tables
        ``item_tables``, ``traces``, ``cuts``, ``readouts``, ``continuations``, ``controls`` as lists of rows.
    choice
        Whether the items have options: else every reading is a continuation.
    """

    def __init__(self, tables: Mapping[str, Sequence[Row]], choice: bool):
        self.choice = choice
        self.items = {row["item_id"]: row for row in tables["item_tables"]}
        self.every_trace = list(tables["traces"])
        self.traces = [row for row in tables["traces"] if row["token_exact"]]
        self.by_id = {row["trace_id"]: row for row in self.traces}
        self.by_run = {(row["arm"], row["item_id"], row["replicate"]): row for row in self.traces}
        self.cuts = [row for row in tables["cuts"] if row["trace_id"] in self.by_id]
        self.probe = {self._place(row): row for row in tables["readouts"] if row["trace_id"] in self.by_id}
        self.written = {self._place(row): row for row in tables["continuations"] if row["mode"] == "answer" and row["trace_id"] in self.by_id}
        self.resumed = {self._place(row): row for row in tables["continuations"] if row["mode"] == "resume" and row["trace_id"] in self.by_id}
        self.control_rows = list(tables["controls"])

    @staticmethod
    def _place(row: Row) -> tuple:
        return row["trace_id"], row["cut_id"], row["context"], row["context_arm"]

    def complete(self, trace: Row, horizon: int) -> bool:
        """Terminated with L <= B."""
        return trace["status"] == "terminated" and trace["n_reasoning"] <= horizon

    def outcome(self, trace: Row, horizon: int, readout: str, common: str) -> bool | None:
        """Right or wrong under a readout (method, section 3); None where it was not read."""
        in_common = readout in ("symmetric", "symmetric_continuation")
        context = ("common", common) if in_common else ("policy", trace["arm"])
        source = self.written if readout.endswith("continuation") else self.probe
        if readout.startswith("terminal") and self.complete(trace, horizon):
            return trace["correct"]
        row = source.get((trace["trace_id"], f"horizon:{horizon}", *context))
        return None if row is None else row["correct"]

    def beside(self, run: Row, read: Row, other: Row) -> Reading:
        """A reading of a run beside another answer; without options, answers are compared as right, wrong or unread."""
        if self.choice:
            return run["item_id"], read["choice"], other.get("answer", other.get("choice")), read["correct"], other["correct"]
        said, answer = ("right" if row["correct"] else None if row["answer"] is None else "wrong" for row in (read, other))
        return run["item_id"], said or "(not read)", answer, read["correct"], other["correct"]

    def readouts(self) -> tuple[str, ...]:
        """The readouts that a study of this kind has."""
        continued = tuple(f"{name}_continuation" for name in PROBED)
        return (*PROBED, *continued) if self.choice else continued

    def pairs(self, treatment: str, reference: str) -> list[tuple[Row, Row]]:
        """(treatment run, reference run) of the same item and replicate, both there."""
        runs = ((self.by_run[treatment, item, r], self.by_run.get((reference, item, r))) for arm, item, r in sorted(self.by_run) if arm == treatment)
        return [(t, r) for t, r in runs if r is not None]

    def state(self, pair: tuple[Row, Row], horizon: int) -> str:
        """The termination stratum of a pair at B."""
        done = tuple(self.complete(run, horizon) for run in pair)
        return {(True, True): TERMINATION[0], (True, False): TERMINATION[1], (False, True): TERMINATION[2], (False, False): TERMINATION[3]}[done]


def outcomes(
    study: Study, comparison: Mapping[str, str], horizons: Sequence[int]
) -> dict[tuple[str, int], list[tuple[tuple[Row, Row], float, float]]]:
    """(readout, horizon) -> pairs with their two outcomes; pairs with an outcome missing on either side are none."""
    found: dict[tuple[str, int], list[tuple[tuple[Row, Row], float, float]]] = {}
    for readout in study.readouts():
        for horizon in horizons:
            rows = []
            for pair in study.pairs(comparison["treatment"], comparison["reference"]):
                values = [study.outcome(run, horizon, readout, comparison["common"]) for run in pair]
                if None not in values:
                    rows.append((pair, float(values[0]), float(values[1])))
            if rows:
                found[readout, horizon] = rows
    return found
