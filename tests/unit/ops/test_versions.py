"""Versions of a run, folded from the log: all of them, of each run of an id."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.core.log import Log, chain, pack
from tests.unit.core.shelf import Shelf, archived

from dalsegno.ops.folding import Folded
from dalsegno.ops.versions import version_of, versions_of
from dalsegno.schemas import values
from dalsegno.schemas.events import InformationSupplied
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record


def fold(records: list[Record]) -> Iterator[Folded]:
    partition = Partition(0)
    partition.versions.keep()
    for record in records:
        yield Folded(record, partition.apply(record), partition)


def test_every_version_is_there_and_the_last_is_the_end() -> None:
    log = Log()
    log.start(chain(2), context={"in": 1})
    for step in ("s0", "s1"):
        log.began(step)
        log.done(step)
    found = list(versions_of(fold(log.records), "r"))
    assert [each.run_version for each in found] == [1, 2, 3]
    assert [[step.step for step in each.settled] for each in found] == [[], ["s0"], ["s0", "s1"]]
    assert found[-1].state is RunState.SUCCEEDED
    assert values.unpack(found[0].context) == {"in": 1}
    assert {each.source for each in found} == {"log"}
    assert version_of(fold(log.records), "r", 2) == found[1]
    assert version_of(fold(log.records), "r", 4) is None
    assert version_of(fold(log.records), "nobody", 1) is None


def test_a_run_from_another_cluster_is_told_of_from_where_it_came_in() -> None:
    shelf = Shelf()
    archived(shelf)
    segment = next(iter(shelf.segments))
    log = Log()
    log.put(shelf.event(segment, "r", absent=True))
    before = log.partition.versions.past("r")
    assert before is not None
    ops = pack([["set", ["in"], "new"]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="test"))
    found = list(versions_of(fold(log.records), "r"))
    assert [each.run_version for each in found] == [before.number + 1]
    assert values.unpack(found[0].context) == {"in": "new"}
