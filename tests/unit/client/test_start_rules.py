"""The parts that keep a handoff from being started twice: marks, commits, names, hellos."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.unit.client.fakes import handoff

from dalsegno.client import NameInUse, SettingsError
from dalsegno.schemas.liveness import Mark
from dalsegno.streams.client.commits import Commits, Fenced
from dalsegno.streams.client.hello import came_from_elsewhere
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.marks import NOWHERE, Place, Seen, mark_text, parse_mark
from dalsegno.streams.client.naming import claim_name


def test_marks_survive_as_text() -> None:
    text = mark_text(Place(17, 2), "host-0", 5)
    assert text == "v1 17.2 host-0 5"
    assert parse_mark(text, "q", 3) == Mark(
        queue="q", partition=3, offset=17, index=2, worker="host-0", incarnation=5
    )
    found = parse_mark(mark_text(NOWHERE, "w", 0), "q", 0)
    assert found is not None
    assert (found.offset, found.index) == NOWHERE


@pytest.mark.parametrize("text", [None, "", "v2 1.0 w 1", "v1 1.0 w", "v1 x.0 w 1", "offset 7"])
def test_metadata_that_is_not_ours_is_no_mark(text: str | None) -> None:
    assert parse_mark(text, "q", 0) is None


def test_an_epoch_that_was_taken_is_never_new_again() -> None:
    seen = Seen(2)
    assert seen.is_new("r", "s", 1)
    seen.add("r", "s", 2)
    assert not seen.is_new("r", "s", 1)
    assert not seen.is_new("r", "s", 2)
    assert seen.is_new("r", "s", 3)
    assert seen.is_new("r", "other", 1)
    for number in range(2):
        seen.add(f"r{number}", "s", 1)
    assert seen.is_new("r", "s", 1)  # bounded: the mark still drops it


class FakeGroup:
    """A group that commits, refuses, or leaves it open; with what it shows when it is read."""

    def __init__(self) -> None:
        self.stored: dict[int, tuple[int, str]] = {}
        self.raises: KafkaError | None = None
        self.applies_anyway = False
        self.reads = 0

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        if self.raises is None or self.applies_anyway:
            for place in offsets:
                self.stored[place.partition] = (place.offset, place.metadata)
        if self.raises is not None:
            raise KafkaException(self.raises)
        return offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.reads += 1
        return [
            TopicPartition(p.topic, p.partition, *self.stored.get(p.partition, (-1001,)))
            for p in partitions
        ]


def commit(group: FakeGroup) -> set[int]:
    commits = Commits(group, "q", "w", 9, 1.0)
    return commits.commit({0: 5, 1: 8}, {0: Place(40, 0), 1: Place(41, 0)}, lambda: True)


def test_a_commit_carries_offset_and_mark() -> None:
    group = FakeGroup()
    assert commit(group) == {0, 1}
    assert group.stored == {0: (5, "v1 40.0 w 9"), 1: (8, "v1 41.0 w 9")}


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    ],
)
def test_a_refused_commit_starts_nothing(code: int) -> None:
    group = FakeGroup()
    group.raises = KafkaError(code)
    assert commit(group) == set()
    assert group.reads == 0


@pytest.mark.parametrize("applies", [True, False])
def test_a_commit_of_unknown_outcome_is_read_back(applies: bool) -> None:
    group = FakeGroup()
    group.raises = KafkaError(KafkaError._TIMED_OUT)
    group.applies_anyway = applies
    assert commit(group) == ({0, 1} if applies else set())


def test_somebody_elses_commit_at_the_same_offset_is_not_ours() -> None:
    group = FakeGroup()
    group.raises = KafkaError(KafkaError._TIMED_OUT)
    group.stored = {0: (5, "v1 40.0 other 3"), 1: (8, "v1 41.0 w 9")}
    assert commit(group) == {1}


@pytest.mark.parametrize("code", [KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID])
def test_a_fenced_member_is_told_apart(code: int) -> None:
    group = FakeGroup()
    group.raises = KafkaError(code)
    with pytest.raises(Fenced):
        commit(group)


def test_names_are_numbered_per_host_and_free_once_released(tmp_path: Path) -> None:
    first = claim_name("d", folder=tmp_path, cluster="c")
    second = claim_name("d", folder=tmp_path, cluster="c")
    assert first.name.endswith("-0")
    assert second.name.endswith("-1")
    first.release()
    assert claim_name("d", folder=tmp_path, cluster="c").name == first.name


def test_a_name_of_a_live_process_is_refused_and_free_at_once_after_its_kill(
    tmp_path: Path,
) -> None:
    program = (
        "import sys, pathlib\n"
        "from dalsegno.streams.client.naming import claim_name\n"
        f"claim_name('d', 'w', pathlib.Path({str(tmp_path)!r}), cluster='c')\n"
        "print('claimed', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        with pytest.raises(NameInUse, match="'w' is taken"):
            claim_name("d", "w", tmp_path, cluster="c")
        process.kill()
        process.wait()
    assert claim_name("d", "w", tmp_path, cluster="c").name == "w"


def test_a_name_is_taken_in_one_cluster_and_free_in_another(tmp_path: Path) -> None:
    ids = ("4L6g3nShT-eMCtK--X86sw", "other", "b1:9092,b2:9092")
    held = [claim_name("d", "w", tmp_path, cluster=cluster) for cluster in ids]
    for cluster in ids:
        with pytest.raises(NameInUse):
            claim_name("d", "w", tmp_path, cluster=cluster)
    held[0].remember(7)
    assert [name.last_incarnation() for name in held] == [7, None, None]


@pytest.mark.parametrize("name", ["", "two words", "a/b", "x" * 101])
def test_a_name_that_a_mark_cannot_carry_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        claim_name("d", name, tmp_path, cluster="c")


def test_only_an_incarnation_of_this_host_needs_no_wait(tmp_path: Path) -> None:
    mark = Mark(queue="q", partition=0, offset=1, index=0, worker="w", incarnation=30)
    other = Mark(queue="q", partition=1, offset=1, index=0, worker="x", incarnation=99)
    name = claim_name("d", "w", tmp_path, cluster="c")
    assert name.last_incarnation() is None
    assert came_from_elsewhere("w", [mark, other], name.last_incarnation())
    name.remember(30)
    assert not came_from_elsewhere("w", [mark, other], name.last_incarnation())
    assert not came_from_elsewhere("w", [other], None)


def test_slots_are_never_lost_nor_made() -> None:
    holding = Holding(3)
    assert holding.reserve(5) == 3
    assert holding.reserve(1) == 0
    holding.give_back(2)
    held = _held("a")
    holding.add(held)
    holding.remove(held)
    holding.remove(held)
    assert holding.free == 3


def _held(run_id: str) -> object:
    class Stub:
        id = (run_id, "s", 1)
        handoff = handoff(run_id=run_id)

    return Stub()
