"""A partition that is silent although its log goes on is read anew; an idle one is left alone."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from dalsegno.streams.client.standstill import SILENT_S, TIMES_MAX, Standstill, StandstillError

LATER_S = 2.0


def found(watch: Standstill, now_s: float) -> bool:
    """At this look, or at the next."""
    return watch.found(now_s) or watch.found(now_s + LATER_S)


class Log:
    """Ends of partitions; `away`: no broker answers."""

    def __init__(self, **ends: int) -> None:
        self.ends = {int(name[1:]): end for name, end in ends.items()}
        self.asked: list[int] = []
        self.away = False
        self.low = 0

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float
    ) -> tuple[int, int] | None:
        self.asked.append(partition.partition)
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self.low, self.ends[partition.partition]


def test_what_is_silent_and_behind_is_found() -> None:
    log = Log(p0=5, p1=5)
    watch = Standstill(log, "q")
    watch.positioned({0: 5, 1: 3}, 0.0)
    assert not watch.found(SILENT_S - 0.1)
    assert log.asked == []
    watch.heard(0, 4, SILENT_S)
    assert not watch.found(SILENT_S + 0.1)
    assert not watch.found(SILENT_S + 0.2)
    assert watch.found(SILENT_S + LATER_S + 0.1)
    assert log.asked == [1, 1]


def test_a_record_that_came_just_now_is_no_standstill() -> None:
    watch = Standstill(Log(p0=6), "q")
    watch.positioned({0: 5}, 0.0)
    assert not watch.found(SILENT_S)
    watch.heard(0, 5, SILENT_S + 0.1)
    assert not found(watch, SILENT_S + LATER_S)


def test_an_idle_partition_stands_at_its_end() -> None:
    log = Log(p0=5)
    watch = Standstill(log, "q")
    watch.positioned({0: 5}, 0.0)
    assert not any(watch.found(float(second)) for second in range(100))
    assert 5 < len(log.asked) < 12


def test_a_partition_that_was_never_committed_begins_at_the_logs_first() -> None:
    watch = Standstill(Log(p0=1), "q")
    watch.positioned({0: -2}, 0.0)
    assert found(watch, SILENT_S)


def test_what_the_log_has_forgotten_is_not_waited_for() -> None:
    log = Log(p0=7)
    log.low = 7
    watch = Standstill(log, "q")
    watch.positioned({0: -2}, 0.0)
    assert not found(watch, SILENT_S)


def test_a_broker_that_is_away_is_not_a_standstill() -> None:
    log = Log(p0=5)
    log.away = True
    watch = Standstill(log, "q")
    watch.positioned({0: 0}, 0.0)
    assert not found(watch, SILENT_S)


def test_too_often_in_a_row_needs_a_new_consumer() -> None:
    watch = Standstill(Log(p0=5), "q")
    for time in range(TIMES_MAX):
        watch.positioned({0: 0}, time * 100.0)
        assert found(watch, time * 100.0 + SILENT_S)
    watch.positioned({0: 0}, 900.0)
    with pytest.raises(StandstillError, match=r"q\[0\]: nothing arrives from 0, the log ends at 5"):
        found(watch, 900.0 + SILENT_S)


def test_an_arrival_begins_the_count_anew() -> None:
    watch = Standstill(Log(p0=5), "q")
    for time in range(2 * TIMES_MAX):
        watch.positioned({0: 0}, time * 100.0)
        watch.heard(0, 0, time * 100.0)
        assert found(watch, time * 100.0 + SILENT_S)
