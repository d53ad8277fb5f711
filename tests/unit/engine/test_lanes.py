"""What a lane hands out: every record once, in order, from the position it was opened at."""

from __future__ import annotations

from aiokafka import TopicPartition

from dalsegno.streams.engine.lanes import BYTES_MAX, RECORDS_MAX, Lane
from dalsegno.streams.engine.raw import RawEvent

PLACE = TopicPartition("events", 0)


def record(offset: int, size: int = 1) -> RawEvent:
    return RawEvent(offset, 1, b"", bytes(size), ())


def came(lane: Lane, *offsets: int, end: int = 0) -> None:
    """Records that arrived together."""
    for offset in offsets:
        assert lane.follows(offset)
        lane.heard(offset + 1)
    lane.put([record(offset) for offset in offsets], end)


def test_what_came_is_handed_out_together_and_no_more_than_asked_for() -> None:
    lane = Lane(PLACE, 5)
    came(lane, 5, 6)
    came(lane, 7, 8, 9, end=20)
    first, second = lane.take(4), lane.take(4)
    assert first is not None
    assert second is not None
    assert [each.offset for each in first.records] == [5, 6, 7, 8]
    assert (first.next_position, lane.take(4)) == (9, None)
    assert [each.offset for each in second.records] == [9]
    assert (second.next_position, second.end_offset, lane.position) == (10, 20, 10)


def test_markers_at_the_end_move_the_position_without_a_record() -> None:
    lane = Lane(PLACE, 0)
    came(lane, 0)
    assert lane.follows(2)
    lane.heard(2)
    lane.put([], 2)
    found = lane.take(10)
    assert found is not None
    assert (len(found.records), found.next_position) == (1, 2)


def test_a_record_of_an_earlier_fetch_is_not_taken_for_the_next() -> None:
    """R076: what was fetched before a rebalance."""
    lane = Lane(PLACE, 5)
    lane.assigned()
    assert not lane.follows(9)  # of whoever read this partition before
    lane.assigned()
    came(lane, 5)
    assert not lane.follows(3)
    assert lane.fetched == 6


def test_offsets_that_are_missing_are_believed_when_they_are_missing_twice() -> None:
    lane = Lane(PLACE, 5)
    lane.assigned()
    assert not lane.follows(7)
    lane.assigned()
    assert lane.follows(7)


def test_offsets_may_be_missing_in_the_middle_of_a_fetch() -> None:
    lane = Lane(PLACE, 5)
    lane.assigned()
    came(lane, 5, 8)
    assert lane.fetched == 9


def test_a_doubt_from_before_a_record_came_counts_no_more() -> None:
    lane = Lane(PLACE, 5)
    lane.assigned()
    assert not lane.follows(9)
    lane.assigned()
    came(lane, 5)
    lane.assigned()
    assert not lane.follows(9)


def test_a_lane_is_full_by_records_and_goes_on_below_half() -> None:
    lane = Lane(PLACE, 0)
    came(lane, *range(RECORDS_MAX - 1))
    assert not lane.full(parked=False)
    came(lane, RECORDS_MAX - 1)
    assert lane.full(parked=False)
    lane.take(RECORDS_MAX // 2)
    assert not lane.full(parked=False)
    assert lane.full(parked=True)
    lane.take(1)
    assert not lane.full(parked=True)


def test_a_lane_is_full_by_bytes() -> None:
    lane = Lane(PLACE, 0)
    lane.heard(1)
    lane.put([record(0, BYTES_MAX)], 1)
    assert lane.full(parked=False)
    lane.take(1)
    assert not lane.full(parked=True)
