"""One batch in flight per channel: no gap in the log whatever the producer does after an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Many

import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from tests.unit.engine.test_encoding import transition

from dalsegno.schemas.codec import encode
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.actions import Audit, Output
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine import outputs as module
from dalsegno.streams.engine.encoding import Encoder, OutRecord
from dalsegno.streams.engine.outputs import FAST_LANE, RECORD_LANE, Outputs
from dalsegno.streams.engine.restore import sequence_of


class FakeProducer:
    """A log; batches are appended when the test says so, or fail."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.pending: list[tuple[Many[OutRecord], asyncio.Future[None]]] = []
        self.refusals: list[BaseException] = []
        self.take_max = 1_000
        self.spoilt = False

    async def send(self, records: Many[OutRecord]) -> tuple[asyncio.Future[None], int]:
        if self.refusals:
            raise self.refusals.pop()
        ack = asyncio.get_running_loop().create_future()
        taken = list(records)[: self.take_max]
        self.pending.append((taken, ack))
        return ack, len(taken)

    def append(self) -> None:
        records, ack = self.pending.pop(0)
        for record in records:
            sequence = sequence_of(record.headers)
            assert sequence is not None
            self.log.append(sequence.count)
        ack.set_result(None)

    async def release(self) -> None:
        pass


class Bench:
    def __init__(self, marks: dict[str, Sequence] | None = None) -> None:
        self.producer = FakeProducer()
        self.failures: list[Exception] = []
        encoder = Encoder(
            Topics("t"),
            0,
            {},
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
            lambda: None,
        )

    def add(self, first: int, last: int) -> None:
        self.outputs.add(
            Output(Sequence(count, 0, count), Audit(transition()))
            for count in range(first, last + 1)
        )


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_next_batch_leaves_only_after_the_acknowledgement() -> None:
    bench = Bench()
    bench.add(1, 3)
    await settle()
    bench.add(4, 6)
    await settle()
    assert len(bench.producer.pending) == 1
    bench.producer.append()
    await settle()
    bench.producer.append()
    await settle()
    assert bench.producer.log == [1, 2, 3, 4, 5, 6]
    assert bench.outputs.unacked == 0


async def test_what_does_not_fit_into_a_batch_follows_in_order() -> None:
    bench = Bench()
    bench.producer.take_max = 2
    bench.add(1, 5)
    for _ in range(3):
        await settle()
        bench.producer.append()
    await settle()
    assert bench.producer.log == [1, 2, 3, 4, 5]


async def test_after_a_failure_nothing_more_leaves() -> None:
    bench = Bench()
    bench.add(1, 2)
    await settle()
    bench.add(3, 4)
    bench.producer.pending.pop()[1].set_exception(KafkaError("lost"))
    await settle()
    bench.add(5, 6)
    await settle()
    assert bench.producer.pending == []
    assert bench.producer.spoilt
    assert len(bench.failures) == 1


async def test_a_batch_that_arrives_after_the_failure_of_another_channel_changes_nothing() -> None:
    bench = Bench()
    bench.add(1, 3)
    await settle()
    bench.outputs.close_soon()
    bench.producer.append()
    await settle()
    bench.add(4, 4)
    await settle()
    assert bench.producer.pending == []


async def test_a_busy_output_partition_is_waited_for() -> None:
    bench = Bench()
    bench.producer.refusals = [KafkaTimeoutError(), KafkaTimeoutError()]
    bench.add(1, 2)
    await settle()
    bench.producer.append()
    await settle()
    assert bench.failures == []
    assert bench.producer.log == [1, 2]


async def test_a_checkpoint_waits_for_exactly_what_was_queued() -> None:
    bench = Bench()
    bench.add(1, 2)
    await settle()
    waiting = asyncio.ensure_future(bench.outputs.acknowledged(bench.outputs.queued()))
    bench.add(3, 3)
    await settle()
    assert not waiting.done()
    bench.producer.append()
    await settle()
    assert waiting.done()
    assert bench.outputs.unacked == 1
    await bench.outputs.close()


async def test_repeats_up_to_the_mark_are_not_sent_again() -> None:
    bench = Bench(marks={"transitions": Sequence(3, 0, 3)})
    bench.add(1, 5)
    await settle()
    bench.producer.append()
    await settle()
    assert bench.producer.log == [4, 5]
    assert bench.outputs.skipped == 3


async def test_a_missing_topic_is_waited_for_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOPIC_RETRY_S", 0.0)
    bench = Bench()
    bench.producer.refusals = [UnknownTopicOrPartitionError(), UnknownTopicOrPartitionError()]
    bench.add(1, 2)
    await settle()
    assert bench.failures == []
    bench.producer.append()
    await settle()
    assert bench.producer.log == [1, 2]
    assert bench.outputs.missing_topics == ()
