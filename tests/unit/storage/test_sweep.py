"""The sweep removes what nobody needs, and never what counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.faulty_objects import Fault, FaultyObjects

from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.records import Kept, pack_records
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.storage.archive.sweep import superfluous

DAY_MS = 24 * 3_600_000


class Bucket:
    """An archive whose clock the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.objects = MemoryObjects(lambda: self.now_ms)
        self.archive = Archive(self.objects, "p")

    def put(self, first: int, end: int, by: str = "") -> Manifest:
        """A segment of the events from `first` up to `end`; `by` makes the bytes another's."""
        writer = SegmentWriter(0, 1)
        records = [Kept(n, n, by.encode(), b"v") for n in range(first, end)]
        writer.add(
            Kind.EVENTS, "", pack_records(records), first=first, last=end - 1, count=end - first
        )
        return self.archive.put(writer.finish(end))

    def put_run(self, position: int) -> Manifest:
        """A segment with the state of one run."""
        writer = SegmentWriter(0, 1)
        writer.add(Kind.RUN, "r", b"state", first=position, last=position, count=1)
        return self.archive.put(writer.finish(position))

    def without_manifest(self, first: int, end: int) -> str:
        name = self.put(first, end, "crashed").segment
        self.objects.delete([f"p/manifests/{name}"])
        return name

    def swept(self, archived_to: int, age_ms: int = DAY_MS) -> set[str]:
        found = superfluous(self.archive, 0, archived_to, age_ms)
        assert not found.broken
        return {*found.unfinished, *found.superseded}


def test_what_a_crash_between_segment_and_manifest_left_goes_once_it_is_old() -> None:
    bucket = Bucket()
    left = bucket.without_manifest(0, 10)
    bucket.now_ms = DAY_MS - 1
    bucket.put(0, 10)
    bucket.put(10, 20)
    assert bucket.swept(20) == set()
    bucket.now_ms = DAY_MS
    bucket.put(20, 30)
    assert superfluous(bucket.archive, 0, 20, DAY_MS).unfinished == (left,)
    bucket.archive.delete([left])
    assert bucket.swept(20, 0) == set()


def test_what_is_not_settled_by_the_log_stays_however_old() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    bucket.without_manifest(10, 20)
    bucket.put(10, 15)
    bucket.now_ms = 100 * DAY_MS
    bucket.put(15, 30)
    assert bucket.swept(10) == set()


def test_what_another_owner_put_and_the_log_did_not_take_goes() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    other = bucket.put(0, 14, "other").segment
    late = bucket.put(10, 12, "other").segment
    bucket.put(10, 30)
    assert bucket.swept(30, 0) == {other, late}


def test_of_two_that_may_both_be_the_one_that_counts_both_stay() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    bucket.put(0, 10, "other")
    bucket.put(10, 20)
    assert bucket.swept(20, 0) == set()


def test_states_of_runs_are_not_judged() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    bucket.put_run(4)
    assert bucket.swept(10, 0) == set()


def test_where_something_that_was_confirmed_is_missing_nothing_goes() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    bucket.without_manifest(0, 4)
    bucket.put(12, 20)
    found = superfluous(bucket.archive, 0, 20, 0)
    assert found == ((), (), True)


def test_a_bucket_that_is_empty_has_nothing_to_sweep() -> None:
    assert superfluous(Bucket().archive, 0, 0, 0) == ((), (), False)


def test_a_topic_that_had_lost_its_beginning_is_archived_from_there() -> None:
    bucket = Bucket()
    bucket.put(7, 10)
    bucket.put(10, 20)
    assert bucket.swept(20, 0) == set()


@given(st.data())
def test_no_order_of_owners_and_crashes_loses_a_confirmed_segment(data: st.DataObject) -> None:
    bucket = Bucket()
    confirmed: list[str] = []
    end, log_end = 0, 60
    for turn in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.sampled_from([end, end, max(0, end - 3)]))
        to = data.draw(st.integers(at + 1, at + 8))
        if data.draw(st.booleans()):
            bucket.without_manifest(at, to)
            continue
        made = bucket.put(at, to, f"owner {turn % 3}")
        if at == end and to <= log_end and data.draw(st.booleans()):
            confirmed.append(made.segment)
            end = to
        bucket.now_ms += data.draw(st.integers(0, DAY_MS))
        found = superfluous(bucket.archive, 0, end, data.draw(st.sampled_from([0, DAY_MS])))
        bucket.archive.delete([*found.unfinished, *found.superseded])
        held = bucket.archive.held(0)
        assert held.manifests.keys() >= set(confirmed)
        assert held.segments.keys() >= set(confirmed)


@pytest.mark.parametrize("names", [["x"], ["00000/a-b-c"], ["00000/1-2"]])
def test_what_is_no_segment_by_its_name_is_left_alone(names: list[str]) -> None:
    bucket = Bucket()
    for name in names:
        bucket.objects.put(f"p/segments/{name}", b"")
    bucket.put(0, 10)
    assert bucket.swept(10, 0) == set()


def test_a_listing_that_leaves_a_manifest_out_takes_no_segment_away() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    bucket.put(10, 20)
    bucket.now_ms = 2 * DAY_MS
    bucket.put(20, 30)
    half = FaultyObjects(
        bucket.objects,
        lambda name, key: Fault.TRUNCATE if name == "list" and "/manifests/" in key else None,
    )
    found = superfluous(Archive(half, "p"), 0, 30, DAY_MS)
    assert (found.unfinished, found.superseded) == ((), ())


def test_a_damaged_manifest_keeps_nothing_else_from_being_swept() -> None:
    bucket = Bucket()
    bucket.put(0, 10)
    damaged = bucket.put(0, 5).segment
    gone = bucket.put(0, 7).segment
    key = f"p/manifests/{damaged}"
    bucket.objects.replace(key, bucket.objects.get(key)[:-1])
    bucket.now_ms = 2 * DAY_MS
    bucket.put(10, 20)
    assert bucket.swept(20) == {gone}
    assert bucket.archive.replaced(0) == []
