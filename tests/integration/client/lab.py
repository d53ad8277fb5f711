"""A stand-in for the service: puts handoffs into a queue and reads what workers and clients
report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from dalsegno.client import Flow, Worker, WorkerConfig
from dalsegno.ops.embedded.topics import create_topics
from dalsegno.schemas import codec, values
from dalsegno.schemas.headers import SEQUENCE, TRACEPARENT
from dalsegno.schemas.outputs import Answer, Handoff, JournalEntry
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.effects import recovery_key
from dalsegno.streams.core.sequence import Sequence

T = TypeVar("T")
PARTITIONS = 2
LIMIT_S = 60.0
"""For whatever is waited for: far more than it takes on a busy machine."""


def wait_for(what: str, look: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Poll until `look` gives something true."""
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s, last {found!r}"
        pause.wait(0.02)
    return found


@dataclass
class Lab:
    """Topics of one prefix. `sequence` numbers the handoffs, as offsets of events would."""

    bootstrap: str
    prefix: str
    queues: tuple[str, ...] = ("default",)
    sequence: int = 0
    seen: dict[str, list[msgspec.Struct]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = Topics(self.prefix)
        names = [self.topics.events, self.topics.heartbeats, self.topics.control]
        names += [self.topics.queue(queue) for queue in self.queues]
        append_time = {"message.timestamp.type": "LogAppendTime"}
        create_topics(self.bootstrap, dict.fromkeys(names, PARTITIONS), append_time)
        self.producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        self.readers: dict[str, Consumer] = {}
        # One that reads nothing: behind a fetch that waits, a question takes half a second.
        self.asker = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": f"{self.prefix}-asker"}
        )
        self.workers: list[tuple[Worker, threading.Thread]] = []

    def close(self) -> None:
        for worker, thread in self.workers:
            worker.stop()
            thread.join(30)
        for reader in (*self.readers.values(), self.asker):
            reader.close()

    def worker(self, *flows: Flow, name: str = "w", lease_ms: int = 8_000, **more: int) -> Worker:
        """A worker in a thread, ready."""
        settings = WorkerConfig(
            lease_ms=lease_ms,
            heartbeat_interval_ms=100,
            group_heartbeat_ms=300,
            stop_timeout_ms=5_000,
        )
        worker = Worker(
            flows,
            bootstrap_servers=self.bootstrap,
            prefix=self.prefix,
            name=f"{self.prefix}-{name}",
            settings=settings,
            **more,
        )
        errors: list[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except Exception as error:
                errors.append(error)

        worker.errors = errors  # type: ignore[attr-defined]
        thread = threading.Thread(target=run)
        thread.start()
        self.workers.append((worker, thread))
        assert worker.ready.wait(LIMIT_S)
        return worker

    def stop(self, worker: Worker) -> None:
        for each, thread in self.workers:
            if each is worker:
                worker.stop()
                thread.join(30)
                assert not thread.is_alive()

    def make(
        self,
        run_id: str,
        step: str,
        *,
        epoch: int = 1,
        inputs: dict[str, object] | None = None,
        start_in_ms: int = 60_000,
        effects: tuple[JournalEntry, ...] = (),
        save: bytes | None = None,
        flow_version: int = 1,
    ) -> Handoff:
        now_ms = time.time_ns() // 1_000_000
        return Handoff(
            run_id=run_id,
            flow="f",
            flow_version=flow_version,
            step=step,
            epoch=epoch,
            goal="",
            inputs=values.pack(inputs or {}),  # type: ignore[arg-type]
            run_version=1,
            recovery_key=recovery_key(run_id, step),
            dispatched_at_ms=now_ms,
            start_by_ms=now_ms + start_in_ms,
            timeout_ms=60_000,
            heartbeat_ms=1_000,
            effects=effects,
            save=save,
        )

    def hand(
        self,
        handoff: Handoff,
        *,
        queue: str = "default",
        sequence: int | None = None,
        trace: str = "",
    ) -> int:
        """Put a handoff into its queue; the same `sequence` again is a repeat. Returns the
        sequence.
        """
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        headers = [(SEQUENCE, Sequence(sequence, 0, sequence).pack())]
        if trace:
            headers.append((TRACEPARENT, trace.encode()))
        self._send(
            self.topics.queue(queue),
            handoff.run_id.encode(),
            codec.encode(handoff),
            partition_for(handoff.run_id, PARTITIONS),
            headers,
        )
        return sequence

    def answer(self, answer: Answer) -> None:
        partition = partition_for(answer.reply_to, PARTITIONS)
        key = answer.reply_to.encode()
        self._send(self.topics.control, key, codec.encode(answer), partition, [])

    def _send(
        self, topic: str, key: bytes, value: bytes, partition: int, headers: list[tuple[str, bytes]]
    ) -> None:
        failures: list[object] = []
        self.producer.produce(
            topic,
            value,
            key,
            partition=partition,
            headers=headers,
            on_delivery=lambda error, _message: failures.append(error),
        )
        self.producer.flush(20)
        assert failures == [None]

    def read(self, topic: str) -> list[msgspec.Struct]:
        """Every record that is in the topic now, in the order of its partitions' offsets."""
        reader = self.readers.get(topic)
        if reader is None:
            reader = self.readers[topic] = Consumer(
                {"bootstrap.servers": self.bootstrap, "group.id": f"{self.prefix}-test"}
            )
            reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            self.seen[topic] = []
        end = sum(self._end(TopicPartition(topic, number)) for number in range(PARTITIONS))
        deadline = time.monotonic() + LIMIT_S
        while len(self.seen[topic]) < end:  # nothing is deleted and nothing is transactional
            assert time.monotonic() < deadline, f"{topic}: {len(self.seen[topic])} of {end} read"
            for message in reader.consume(500, 0.05):
                assert message.error() is None, message.error()
                self.seen[topic].append(codec.decode(message.value()))
        return self.seen[topic]

    def _end(self, place: TopicPartition) -> int:
        """A partition that was made just now may have no leader yet."""

        def ask() -> tuple[int, int] | None:
            try:
                return self.asker.get_watermark_offsets(place, LIMIT_S)
            except KafkaException:
                return None

        return wait_for(f"the end of {place}", ask)[1]

    def events(self, run_id: str, *kinds: type[msgspec.Struct]) -> list[msgspec.Struct]:
        """What was reported about a run so far, of these kinds or of all."""
        return [
            event
            for event in self.read(self.topics.events)
            # type: ignore[attr-defined]
            if event.run_id == run_id and (not kinds or isinstance(event, kinds))
        ]

    def kinds(self, run_id: str) -> list[str]:
        return [type(event).__name__ for event in self.events(run_id)]

    def wait_kinds(self, run_id: str, *expected: str) -> None:
        wait_for(
            f"{expected} of {run_id}",
            lambda: self.kinds(run_id)[-len(expected) :] == list(expected),
        )
