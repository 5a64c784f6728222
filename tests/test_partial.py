"""Finished batches: resumed, recomputed where broken, kept apart by identity."""

import polars as pl
import pytest
from builders import item

from midtrace import tables
from midtrace.partial import Parts

NAMES = [f"toy/{k}" for k in range(7)]
META = tables.metadata("items", "toy", {"seed": 1})


class Work:
    """Computes items by name, remembers for which, and dies before its ``dies``-th batch."""

    def __init__(self, dies: int = 99, empty: tuple[str, ...] = ()):
        self.batches, self.dies, self.empty = [], dies, empty

    def __call__(self, names) -> pl.DataFrame:
        if len(self.batches) == self.dies:
            raise RuntimeError("killed")
        self.batches.append(list(names))
        return tables.frame_of([item(name) for name in names if name not in self.empty], tables.Items)


def parts(tmp_path, meta=META, code="c") -> Parts:
    return Parts(tmp_path / "out.parquet", tables.Items, meta, code)


def complete(of: Parts, work: Work, batch=2) -> pl.DataFrame:
    return of.complete(NAMES, "item_id", batch, work, "items", "item")


@pytest.fixture
def undisturbed(tmp_path) -> pl.DataFrame:
    return complete(parts(tmp_path / "elsewhere"), Work())


def files(of: Parts) -> list[str]:
    return sorted(path.name for path in of.folder.iterdir())


def test_all_rows_in_the_order_of_the_names(undisturbed):
    assert undisturbed["item_id"].to_list() == NAMES
    assert undisturbed.equals(tables.conform(tables.frame_of([item(name) for name in NAMES], tables.Items), tables.Items, "items"))


@pytest.mark.parametrize("dies", [0, 1, 2, 3])
def test_a_killed_job_resumes(tmp_path, undisturbed, dies):
    with pytest.raises(RuntimeError, match="killed"):
        complete(parts(tmp_path), Work(dies))
    rest = Work()
    # Another batch size, too: a batch is only what was computed together.
    found = complete(parts(tmp_path), rest, batch=3)
    assert [name for batch in rest.batches for name in batch] == NAMES[2 * dies :]
    assert found.equals(undisturbed)


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_corrupt_batch_is_recomputed_and_no_other_is_lost(tmp_path, undisturbed, broken):
    with pytest.raises(RuntimeError):
        complete(parts(tmp_path), Work(3))
    path = parts(tmp_path).folder / f"{broken:06d}.parquet"
    path.write_bytes(path.read_bytes()[:100])
    rest = Work()
    found = complete(parts(tmp_path), rest)
    assert {name for batch in rest.batches for name in batch} == {*NAMES[2 * broken : 2 * broken + 2], NAMES[6]}
    assert found.equals(undisturbed)


def test_other_identities_and_other_code_are_neither_used_nor_deleted(tmp_path):
    first = parts(tmp_path)
    complete(first, Work())
    before = {path: path.read_bytes() for path in first.folder.iterdir()}
    for other in (parts(tmp_path, tables.metadata("items", "toy", {"seed": 2})), parts(tmp_path, code="d")):
        work = Work()
        complete(other, work)
        assert [name for batch in work.batches for name in batch] == NAMES
        other.clear()
        assert not other.folder.exists()
    assert {path: path.read_bytes() for path in first.folder.iterdir()} == before
    again = Work()
    complete(parts(tmp_path), again)
    assert again.batches == []


def test_a_part_that_another_identity_wrote_here_is_dropped(tmp_path, undisturbed):
    of = parts(tmp_path)
    other = tables.metadata("items", "toy", {"seed": 2})
    tables.write(tables.frame_of([item("toy/0", answer="A")], tables.Items), of.folder / "000000.parquet", tables.Items, other)
    assert complete(of, Work()).equals(undisturbed)


def test_names_without_rows(tmp_path):
    everything = tuple(NAMES)
    assert complete(parts(tmp_path), Work(empty=everything)).schema == tables.frame_of([], tables.Items).schema
    some = complete(parts(tmp_path / "b"), Work(empty=("toy/0", "toy/1", "toy/4")))
    assert some["item_id"].to_list() == ["toy/2", "toy/3", "toy/5", "toy/6"]


def test_a_half_written_batch_is_not_a_batch(tmp_path, undisturbed):
    of = parts(tmp_path)
    of.folder.mkdir(parents=True)
    (of.folder / ".000000.parquet.1.tmp").write_bytes(b"half")
    assert complete(of, Work()).equals(undisturbed)
    assert files(of) == [".000000.parquet.1.tmp", "000000.parquet", "000001.parquet", "000002.parquet", "000003.parquet"]
    of.clear()
    assert not of.folder.exists()
