"""Nothing is dropped, a full queue pushes back, and every sender learns what became of its
record.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError
from tests.unit.client.fakes import FakeKafka

from dalsegno.client import ClientConfig, ClosedError, DeliveryFailed, QueueFull
from dalsegno.streams.client.producer import OutRecord, Producer, Receipt
from dalsegno.streams.client.refused import BrokerRefused, Cause


class Lab:
    """A producer over fakes; `kafkas` lists each client that it has made."""

    def __init__(self, queue: int = 100) -> None:
        self.kafkas: list[FakeKafka] = []
        config = ClientConfig("nowhere:1", queue_messages_max=queue, delivery_timeout_ms=2_000)
        self.producer = Producer(config, "test", factory=self._make)  # type: ignore[arg-type]

    def _make(self, config: dict[str, object]) -> FakeKafka:
        self.kafkas.append(FakeKafka(config))
        return self.kafkas[-1]


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    for kafka in lab.kafkas:
        kafka.online = True
    lab.producer.close(60)


def record(number: int) -> OutRecord:
    return OutRecord("events", 0, b"run", str(number).encode())


def test_an_acknowledged_record_has_a_receipt_with_its_append_time(lab: Lab) -> None:
    assert lab.producer.deliver(record(1), 60) == Receipt("events", 0, 1, 1_000)


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError._UNKNOWN_TOPIC, True),
        (KafkaError._UNKNOWN_PARTITION, True),
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_what_a_broker_that_is_just_starting_says_is_no_reason_to_give_a_result_up(
    lab: Lab, code: int, retriable: bool
) -> None:
    """Its metadata may lack a topic for a moment: the library then fails all that waits for it."""
    lab.kafkas[0].error = KafkaError(code)
    with pytest.raises(DeliveryFailed) as caught:
        lab.producer.deliver(record(1), 60)
    assert caught.value.retriable is retriable


def test_a_topic_that_may_not_be_seen_is_a_missing_right(lab: Lab) -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    seen = SimpleNamespace(topics={"events": SimpleNamespace(error=error, partitions={})})
    lab.kafkas[0].list_topics = lambda *_, **__: seen  # type: ignore[attr-defined]
    with pytest.raises(BrokerRefused, match=r"events: TOPIC_AUTHORIZATION_FAILED") as refused:
        lab.producer.partition_count("events")
    assert refused.value.cause is Cause.RIGHTS


def test_a_burst_over_a_full_queue_loses_nothing_and_keeps_its_order(lab: Lab) -> None:
    kafka = lab.kafkas[0]
    kafka.online = False
    told = threading.Semaphore(0)
    for number in range(1_001):
        lab.producer.send(record(number), lambda _receipt, _error: told.release())
    assert lab.producer.unsent == 1_001
    assert len(kafka.waiting) == 100
    kafka.online = True
    for _ in range(1_001):
        assert told.acquire(timeout=60)
    assert [int(queued.value) for queued in kafka.delivered] == list(range(1_001))


def test_a_caller_that_may_block_waits_for_room(lab: Lab) -> None:
    kafka = lab.kafkas[0]
    kafka.online = False
    for number in range(100):
        lab.producer.send(record(number), lambda _receipt, _error: None)
    threading.Timer(0.05, lambda: setattr(kafka, "online", True)).start()
    lab.producer.deliver(record(100), 60)
    assert int(kafka.delivered[-1].value) == 100


def test_a_queue_that_stays_full_is_an_error_at_the_caller_and_nothing_was_sent(lab: Lab) -> None:
    kafka = lab.kafkas[0]
    kafka.online = False
    for number in range(100):
        lab.producer.send(record(number), lambda _receipt, _error: None)
    with pytest.raises(QueueFull):
        lab.producer.deliver(record(100), 0.05)
    kafka.online = True
    lab.producer.flush(60)
    assert [int(queued.value) for queued in kafka.delivered] == list(range(100))


def test_a_delivery_failure_is_an_exception_at_the_caller(lab: Lab) -> None:
    lab.kafkas[0].error = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(DeliveryFailed, match="_MSG_TIMED_OUT") as caught:
        lab.producer.deliver(record(1), 60)
    assert caught.value.retriable
    lab.kafkas[0].error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(DeliveryFailed) as caught:
        lab.producer.deliver(record(1), 60)
    assert not caught.value.retriable


def test_a_batch_is_told_its_first_failure_once_all_outcomes_are_known(lab: Lab) -> None:
    assert len(lab.producer.deliver_all([record(n) for n in range(5)], 2)) == 5
    lab.kafkas[0].error = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(DeliveryFailed):
        lab.producer.deliver_all([record(n) for n in range(5)], 2)


def test_after_a_fatal_error_the_next_record_gets_a_new_client(lab: Lab) -> None:
    first = lab.kafkas[0]
    first.online = False
    failures: list[DeliveryFailed | None] = []
    lab.producer.send(record(0), lambda _receipt, error: failures.append(error))
    first.fatal = True
    with pytest.raises(DeliveryFailed, match="_FATAL"):
        lab.producer.deliver(record(1), 60)
    lab.producer.deliver(record(2), 60)
    assert [int(queued.value) for queued in lab.kafkas[1].delivered] == [2]
    # What the spoilt client still held was told to its sender: nothing vanishes.
    assert len(failures) == 1
    assert failures[0] is not None


def test_a_closed_producer_refuses(lab: Lab) -> None:
    assert lab.producer.close(60) == 0
    with pytest.raises(ClosedError):
        lab.producer.deliver(record(1), 1)


def test_close_says_how_many_records_were_not_acknowledged() -> None:
    lab = Lab()
    lab.kafkas[0].online = False
    for number in range(3):
        lab.producer.send(record(number), lambda _receipt, _error: None)
    assert lab.producer.close(0.05) == 3


def test_a_sender_that_raises_at_its_outcome_costs_no_other_record_its_own(lab: Lab) -> None:
    """The thread that tells the outcomes ended of it, without a word."""
    told = threading.Event()

    def raises(_receipt: Receipt | None, _error: DeliveryFailed | None) -> None:
        told.set()
        raise RuntimeError("a fault of the sender")

    lab.producer.send(record(1), raises)
    assert told.wait(60)
    assert lab.producer.deliver(record(2), 60).offset == 2


def test_a_waiting_record_that_fails_at_a_sender_that_raises_is_told_once(lab: Lab) -> None:
    """It stayed the first in line, was tried for ever, and nothing behind it was sent."""
    kafka = lab.kafkas[0]
    kafka.online = False
    told: list[DeliveryFailed | None] = []

    def raises(_receipt: Receipt | None, error: DeliveryFailed | None) -> None:
        told.append(error)
        raise RuntimeError("the sender's loop is closed")

    for number in range(100):
        lab.producer.send(record(number), lambda _receipt, _error: None)
    kafka.refused = b"100"
    lab.producer.send(record(100), raises)
    kafka.online = True
    lab.producer.deliver(record(101), 60)
    assert [int(queued.value) for queued in kafka.delivered] == [*range(100), 101]
    assert len(told) == 1


def test_a_closed_producer_is_asked_nothing(lab: Lab) -> None:
    """A client that was closed made another reader of answers, which nobody ended."""
    lab.producer.close(60)
    with pytest.raises(ClosedError):
        lab.producer.partition_count("events")
