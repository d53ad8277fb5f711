"""Outputs leave at once and in order; after a failure nothing more does."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import KafkaError
from tests.unit.engine.test_encoding import transition

from dalsegno.schemas.codec import encode
from dalsegno.schemas.outputs import Answer, AnswerType, Handoff
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.actions import Action, Audit, Dispatch, Output, Reply
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine import outputs as module
from dalsegno.streams.engine.encoding import Encoder, OutRecord
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.outputs import FAST_LANE, RECORD_LANE, Outputs
from dalsegno.streams.engine.producers import Acked
from dalsegno.streams.engine.restore import sequence_of


class FakeProducer:
    """A log; records are appended when the test says so, or fail."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.pending: list[tuple[OutRecord, Acked | None]] = []
        self.topics = True
        self.asked = 0
        self.refuses = False
        self.spoilt = False

    def send(self, record: OutRecord, acked: Acked | None) -> None:
        if self.refuses:
            raise OutcomeUnknownError("it takes no more")
        self.pending.append((record, acked))

    async def knows(self, _topic: str) -> bool:
        self.asked += 1
        return self.topics

    def append(self, count: int) -> None:
        going, self.pending = self.pending[:count], self.pending[count:]
        for record, acked in going:
            sequence = sequence_of(record.headers)
            assert sequence is not None
            self.log.append(sequence.count)
            if acked is not None:
                acked(None, None)  # type: ignore[arg-type]

    def lose(self) -> None:
        """The first of them is given up, and so is all that follows it."""
        lost, self.pending = self.pending, []
        for _, acked in lost:
            if acked is not None:
                acked(KafkaError(KafkaError._MSG_TIMED_OUT), None)  # type: ignore[arg-type]

    async def release(self) -> None:
        pass


class Bench:
    def __init__(self, marks: dict[str, Sequence] | None = None) -> None:
        self.producer = FakeProducer()
        self.failures: list[Exception] = []
        self.moved = 0
        encoder = Encoder(
            Topics("t"),
            0,
            {"t.control": 4},
            size_max=lambda _topic: 10_000,
            encode=encode,
            omitted=lambda _channel, _reason: None,
        )
        lanes = {FAST_LANE: self.producer, RECORD_LANE: self.producer}
        self.outputs = Outputs(
            encoder,
            lanes,  # type: ignore[arg-type]
            marks or {},
            self.failures.append,
            self._moved,
        )

    def _moved(self) -> None:
        self.moved += 1

    def add(self, first: int, last: int, action: Action | None = None) -> None:
        self.outputs.add(
            Output(Sequence(count, 0, count), action or Audit(transition()))
            for count in range(first, last + 1)
        )
        self.outputs.flush()


def handoff() -> Dispatch:
    made = Handoff(
        run_id="r",
        flow="f",
        flow_version=1,
        step="s",
        epoch=1,
        goal="",
        inputs=b"\x80",
        run_version=1,
        recovery_key="k",
        dispatched_at_ms=0,
        start_by_ms=1,
        timeout_ms=1,
        heartbeat_ms=1,
    )
    return Dispatch("new", made)


def answer() -> Reply:
    return Reply(Answer(reply_to="worker", run_id="r", answer=AnswerType.ACCEPTED))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker knows the producer already."""
    monkeypatch.setattr(module, "FIRST_RECORDS", module.BATCH_RECORDS_MAX)


async def test_nothing_follows_the_first_record_before_it_is_appended() -> None:
    """Of a producer that it does not know, a broker would take the second batch without the
    first.
    """
    bench = Bench()
    bench.add(1, 6)
    assert len(bench.producer.pending) == 1
    bench.producer.append(1)
    assert len(bench.producer.pending) == 5
    bench.producer.append(5)
    bench.add(7, 9)
    assert len(bench.producer.pending) == 3
    assert bench.producer.log == [1, 2, 3, 4, 5, 6]


async def test_a_producer_that_has_sent_nothing_for_long_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KNOWN_S", 0.0)
    bench = Bench()
    bench.add(1, 1)
    bench.producer.append(1)
    bench.add(2, 4)
    assert len(bench.producer.pending) == 1


@pytest.mark.usefixtures("known")
async def test_what_left_together_counts_once_all_of_it_is_appended() -> None:
    bench = Bench()
    bench.add(1, 6)
    assert bench.outputs.unacked == 6
    bench.producer.append(5)
    await settle()
    assert bench.outputs.unacked == 6
    assert bench.moved == 0
    bench.producer.append(1)
    await settle()
    assert bench.producer.log == [1, 2, 3, 4, 5, 6]
    assert bench.outputs.unacked == 0
    assert bench.moved == 1


async def test_records_for_several_partitions_count_one_by_one() -> None:
    bench = Bench()
    bench.add(1, 3, answer())
    bench.producer.append(2)
    await settle()
    assert bench.outputs.unacked == 1
    bench.producer.append(1)
    await settle()
    assert bench.outputs.unacked == 0


async def test_one_of_several_partitions_that_fails_fails_the_task() -> None:
    bench = Bench()
    bench.add(1, 3, answer())
    bench.producer.append(1)
    bench.producer.lose()
    assert len(bench.failures) == 1
    assert bench.producer.spoilt


@pytest.mark.usefixtures("known")
async def test_what_gathers_meanwhile_leaves_together_after_the_acknowledgement() -> None:
    bench = Bench()
    bench.add(1, 2)
    bench.add(3, 4)
    bench.add(5, 5)
    assert len(bench.producer.pending) == 2
    bench.producer.append(1)
    assert len(bench.producer.pending) == 1
    bench.producer.append(1)
    assert len(bench.producer.pending) == 3
    bench.producer.append(3)
    assert bench.producer.log == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("known")
async def test_after_a_failure_nothing_more_leaves() -> None:
    bench = Bench()
    bench.add(1, 3)
    bench.add(4, 4)
    bench.producer.append(1)
    bench.producer.lose()
    bench.add(5, 6)
    await settle()
    assert bench.producer.pending == []
    assert bench.producer.log == [1]
    assert bench.producer.spoilt
    assert len(bench.failures) == 1


async def test_a_producer_that_takes_no_more_fails_the_partition_once() -> None:
    bench = Bench()
    bench.producer.refuses = True
    bench.add(1, 3)
    assert len(bench.failures) == 1
    assert bench.producer.spoilt


async def test_acknowledgements_after_the_end_change_nothing() -> None:
    bench = Bench()
    bench.add(1, 3)
    bench.outputs.close_soon()
    bench.producer.append(3)
    await settle()
    assert bench.moved == 0


async def test_a_checkpoint_waits_for_what_was_queued_and_what_left_with_it() -> None:
    bench = Bench()
    bench.add(1, 2)
    waiting = asyncio.ensure_future(bench.outputs.acknowledged(bench.outputs.queued()))
    bench.add(3, 3)
    bench.producer.append(1)
    await settle()
    bench.add(4, 4)
    assert not waiting.done()
    bench.producer.append(2)
    await settle()
    assert waiting.done()
    assert bench.outputs.unacked == 1
    await bench.outputs.close()


@pytest.mark.usefixtures("known")
async def test_repeats_up_to_the_mark_are_not_sent_again() -> None:
    bench = Bench(marks={"transitions": Sequence(3, 0, 3)})
    bench.add(1, 5)
    bench.producer.append(2)
    assert bench.producer.log == [4, 5]
    assert bench.outputs.skipped == 3


@pytest.mark.usefixtures("known")
async def test_a_missing_topic_is_waited_for_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOPIC_RETRY_S", 0.0)
    bench = Bench()
    bench.producer.topics = False
    bench.add(1, 2, handoff())
    await settle()
    assert bench.producer.asked > 1
    assert bench.producer.pending == []
    assert bench.outputs.missing_topics == ("t.queue.new",)
    bench.producer.topics = True
    bench.add(3, 3, handoff())
    await settle()
    bench.add(4, 4, handoff())
    bench.producer.append(3)
    bench.producer.append(1)
    assert bench.producer.log == [1, 2, 3, 4]
    assert bench.outputs.missing_topics == ()


async def test_what_waits_for_a_topic_is_dropped_with_the_partition() -> None:
    bench = Bench()
    bench.producer.topics = False
    bench.add(1, 2, handoff())
    await settle()
    await bench.outputs.close()
    bench.producer.topics = True
    await settle()
    assert bench.producer.pending == []
