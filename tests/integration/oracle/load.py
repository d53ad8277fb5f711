"""The load: runs released bit by bit, handoffs answered, every acknowledgement kept."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from itertools import chain, islice
from random import Random
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.integration.engine.harness import Lab
from tests.integration.oracle import scripts
from tests.oracle.progress import FINAL

from dalsegno.schemas import headers
from dalsegno.schemas.codec import decode, encode
from dalsegno.schemas.control import PartitionControl
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.outputs import Handoff, Transition
from dalsegno.schemas.partitioner import partition_for

WINDOW = 40
SLICE = 6


class Load:
    """One thread plays all services. `allow` says how many runs it may have begun by now.

    `acked`: what the log took, as a checksum by (partition, offset). `failed`: what it did not.
    """

    def __init__(self, lab: Lab, seed: int, runs: int) -> None:
        self._lab = lab
        self._seed = seed
        self._random = Random(f"{seed}/load")
        numbers = range(runs)
        # Two of three are managed.
        self.runs = [f"m{n}" if n % 3 else f"o{n}" for n in numbers]
        self.begun = 0
        self.allowed = 0
        self.ended: set[str] = set()
        self.sent: Counter[str] = Counter()
        self.acked: dict[tuple[int, int], int] = {}
        self.failed: list[KafkaError] = []
        self.error: BaseException | None = None
        self._answered: set[tuple[str, str, int]] = set()
        self._scripts: deque[Iterator[RunEvent]] = deque()
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": lab.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 2,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": lab.bootstrap,
                "group.id": "oracle",
                "reconnect.backoff.max.ms": 1_000,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0
        self._consumer.close()

    def allow(self, runs: int) -> None:
        self.allowed = runs

    def done(self) -> bool:
        if self.error is not None:
            raise AssertionError("the load has ended") from self.error
        return len(self.ended) == len(self.runs) and not self._scripts

    def sign(self, event: PartitionControl) -> None:
        """Append a control event as the service would."""
        topic, value = self._lab.topics.events, encode(event)
        mac = self._lab.settings.keyring.sign("k1", topic, event.partition, value)
        key = str(event.partition).encode()
        self._append("control", event.partition, key, value, [(headers.MAC, mac)])

    def _run(self) -> None:
        topics = self._lab.topics
        places = [
            TopicPartition(topic, number, 0)
            for topic in (topics.queue("default"), topics.transitions)
            for number in range(self._lab.partitions)
        ]
        self._consumer.assign(places)
        try:
            while not self._stopped.is_set():
                self._begin()
                for message in self._consumer.consume(500, 0.0 if self._scripts else 0.05):
                    self._heard(message)
                self._speak()
        except BaseException as error:
            self.error = error

    def _begin(self) -> None:
        while self.begun < self.allowed and self.begun - len(self.ended) < WINDOW:
            run_id = self.runs[self.begun]
            self.begun += 1
            if run_id.startswith("m"):
                self._scripts.append(iter([scripts.started(run_id, managed=True)]))
            else:
                self._scripts.append(scripts.observed(Random(f"{self._seed}/{run_id}"), run_id))

    def _heard(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            assert error.retriable() or error.code() < 0, error
            return
        record = decode(message.value() or b"")
        if isinstance(record, Transition):
            if record.run_state_after in FINAL:
                self.ended.add(record.run_id)
            return
        assert isinstance(record, Handoff)
        attempt = (record.run_id, record.step, record.epoch)
        # A reader without the SDK drops repeats by run, step and epoch; a careless one does not.
        if attempt in self._answered and self._random.random() < 0.8:
            return
        self._answered.add(attempt)
        self._scripts.append(scripts.answer(Random(f"{self._seed}/{attempt}"), record))

    def _speak(self) -> None:
        """A few events of each script in turn, with repeats and rubbish in between."""
        for _ in range(len(self._scripts)):
            script = self._scripts.popleft()
            events = list(islice(script, SLICE))
            for event in events:
                self._send(event)
            if len(events) == SLICE:
                self._scripts.append(script)

    def _send(self, event: RunEvent) -> None:
        random = self._random
        home, key, value = self._home(event)
        repeats = 2 if random.random() < 0.08 else 1
        for _ in range(repeats):
            self._append("events", home, key, value)
        if random.random() < 0.01:
            raw = scripts.rubbish(random, event, self._lab.partitions)
            self._append("rubbish", *raw)

    def _home(self, event: RunEvent) -> tuple[int, bytes, bytes]:
        home = partition_for(event.run_id, self._lab.partitions)
        return home, event.run_id.encode(), encode(event)

    def _append(
        self,
        what: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        more: list[tuple[str, bytes]] | None = None,
    ) -> None:
        self.sent[what] += 1
        while True:
            try:
                self._producer.produce(
                    self._lab.topics.events,
                    value,
                    key,
                    partition=partition,
                    headers=more or [],
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        self.acked[message.partition() or 0, message.offset() or 0] = checksum(message)


def checksum(message: Message) -> int:
    """Of what a record says."""
    parts = chain([message.key() or b"", message.value() or b""])
    return crc32(b"\x00".join(parts))
