"""Engines as processes, events in, and the oracle of what came out. Reads Kafka only."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Message, Producer
from tests.integration.engine.processes import ModuleProcess
from tests.integration.engine.strangers import send_bad_header_name

from dalsegno.client import Flow, Worker
from dalsegno.schemas.codec import decode, encode
from dalsegno.schemas.control import ClockTick
from dalsegno.schemas.events import RiskFlagged, RunEvent
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.logread import LogReader
from dalsegno.streams.engine.restore import sequence_in
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.topics_admin import TopicAdmin

T = TypeVar("T")
KEY_HEX = "0123456789abcdef" * 4


def wait_for(what: str, look: Callable[[], T], limit_s: float = 90.0, every_s: float = 0.05) -> T:
    """Poll until `look` gives something true."""
    deadline = time.monotonic() + limit_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit_s} s, last {found!r}")
        time.sleep(every_s)


@dataclass
class Lab:
    """Topics under one prefix on one broker, and the engines that run on them."""

    bootstrap: str
    prefix: str
    folder: Path
    partitions: int = 4
    engines: list[EngineProcess] = field(default_factory=list)
    producer: Producer | None = None

    def __post_init__(self) -> None:
        self.settings = self.make_settings()
        self.topics = self.settings.topics

    def make_settings(self, **more: object) -> EngineSettings:
        values = {
            "bootstrap_servers": self.bootstrap,
            "prefix": self.prefix,
            "dev": True,
            "mac_keys": {"k1": bytes.fromhex(KEY_HEX)},
            "http_port": 0,
        }
        return EngineSettings.model_validate(values | more)

    def environment(self) -> dict[str, str]:
        """Settings of a process of this lab: an engine, or the command line."""
        return {
            "DALSEGNO_BOOTSTRAP_SERVERS": self.bootstrap,
            "DALSEGNO_PREFIX": self.prefix,
            "DALSEGNO_DEV": "true",
            "DALSEGNO_MAC_KEYS": f"k1:{KEY_HEX}",
        }

    def create_topics(self) -> None:
        TopicAdmin(self.settings).create((), self.partitions)

    def engine(self, name: str = "e", *, fold: str = "tiny", **env: str) -> EngineProcess:
        engine = EngineProcess(self, f"{name}{len(self.engines)}", fold, env)
        self.engines.append(engine)
        return engine

    def send(self, events: Iterator[RunEvent] | list[RunEvent]) -> int:
        """Append run events, each to its partition; waits until all are acknowledged."""
        count = 0
        for event in events:
            self.send_raw(
                partition_for(event.run_id, self.partitions), event.run_id.encode(), encode(event)
            )
            count += 1
        self.flush()
        return count

    def send_raw(
        self,
        partition: int,
        key: bytes,
        value: bytes,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        if self.producer is None:
            self.producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 2})
        self.producer.produce(
            self.topics.events, value, key, partition=partition, headers=headers or []
        )
        self.producer.poll(0)

    async def send_bad_header_name(self, partition: int) -> None:
        await send_bad_header_name(self.bootstrap, self.topics.events, partition)

    def flush(self) -> None:
        assert self.producer is not None
        assert self.producer.flush(20) == 0

    def read(self, topic: str, partition: int) -> list[Message]:
        reader = LogReader(self.settings)
        try:
            return list(reader.read(topic, partition))
        finally:
            reader.close()

    def end(self, topic: str, partition: int) -> int:
        reader = LogReader(self.settings)
        try:
            return reader.bounds(topic, partition)[1]
        finally:
            reader.close()

    def left(self, partition: int, position: int) -> list[Message]:
        """Events from a position on, without ticks: one may come while the engine stops."""
        found = self.read(self.topics.events, partition)
        behind = [each for each in found if (each.offset() or 0) >= position]
        return [each for each in behind if not isinstance(decode(each.value()), ClockTick)]

    def ordered(self, topic: str) -> dict[int, list[tuple[Sequence, Message]]]:
        """By partition, the outputs of a topic after dropping repeats, checked as a reader would.

        Asserts: no gap in the dense count, and a repeat has the very bytes of the first.
        """
        found: dict[int, list[tuple[Sequence, Message]]] = {}
        for partition in range(self.partitions):
            seen: dict[Sequence, tuple[object, object]] = {}
            kept: list[tuple[Sequence, Message]] = []
            for message in self.read(topic, partition):
                sequence = sequence_in(message)
                assert sequence is not None
                body = (message.key(), message.value())
                assert seen.setdefault(sequence, body) == body, f"{sequence}: other bytes"
                if sequence.count == len(kept) + 1:
                    kept.append((sequence, message))
                assert sequence.count <= len(kept), f"gap before {sequence} in {topic}[{partition}]"
            found[partition] = kept
        return found

    def stop(self) -> None:
        for engine in self.engines:
            engine.end()


@contextmanager
def working(lab: Lab, flow: Flow, name: str = "", **options: Any) -> Iterator[Worker]:
    """A worker in a thread of this process, ready. Stopped at the end, and then it has ended."""
    worker = Worker(
        [flow],
        bootstrap_servers=lab.bootstrap,
        prefix=lab.prefix,
        name=name or lab.prefix,
        **options,
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert worker.ready.wait(60)
        yield worker
    finally:
        worker.stop()
        thread.join(60)
    assert not thread.is_alive()


class WorkerProcess(ModuleProcess):
    """One worker of a lab under a name of its own; `module` takes it as its first argument."""

    def __init__(self, lab: Lab, name: str, module: str, *arguments: str, **env: str) -> None:
        self._lab = lab
        self._env = env
        self.name = f"{lab.prefix}-{name}"
        super().__init__(lab.folder / f"worker-{name}.log", module, self.name, *arguments)

    def environment(self) -> dict[str, str]:
        return {
            "DALSEGNO_BOOTSTRAP_SERVERS": self._lab.bootstrap,
            "DALSEGNO_PREFIX": self._lab.prefix,
            **self._env,
        }


class EngineProcess(ModuleProcess):
    """One engine of a lab."""

    def __init__(self, lab: Lab, name: str, fold: str, env: dict[str, str]) -> None:
        self.lab = lab
        self.env = env
        self._port = 0
        super().__init__(
            lab.folder / f"{name}.log", "tests.integration.engine.engine_process", fold
        )

    def environment(self) -> dict[str, str]:
        from dalsegno.ops.embedded.ports import free_ports

        self._port = free_ports(1)[0]
        return {**self.lab.environment(), "DALSEGNO_HTTP_PORT": str(self._port), **self.env}

    def get(self, path: str) -> tuple[int, object]:
        """GET: status and JSON; status 0 while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as got:
                return got.status, json.load(got)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, None

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as got:
            return got.read().decode()

    def wait_ready(self, partitions: int | None = None) -> None:
        """Until it is ready with as many partitions as there are (or as said)."""
        want = self.lab.partitions if partitions is None else partitions

        def look() -> bool:
            assert self.process.poll() is None, f"ended: {self.tail()}"
            status, body = self.get("/readyz")
            return status == 200 and len(body["partitions"]) == want  # type: ignore[index, call-overload]

        try:
            wait_for("engine ready", look)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.get('/readyz')}; {self.tail()}") from None

    def wait_caught_up(self, limit_s: float = 90.0) -> None:
        """Until it has folded everything that is in the log now."""
        ends = {n: self.lab.end(self.lab.topics.events, n) for n in range(self.lab.partitions)}

        def look() -> bool:
            status, body = self.get("/partitions")
            own = body["own"] if status == 200 else []  # type: ignore[index, call-overload]
            found = {each["partition"]: each.get("position", 0) for each in own}
            return all(found.get(number, 0) >= end for number, end in ends.items())

        wait_for("the end of the log", look, limit_s)


def metric(engine: EngineProcess, name: str) -> float:
    """The sum over all of its labels, or over those that `name` gives."""
    lines = engine.text("/metrics").splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def flags(count: int, runs: int, start: int = 0, **more: str) -> Iterator[RunEvent]:
    """Simple run events over so many runs."""
    fields = {"flag": "x", "reply_to": "tests"} | more
    for i in range(start, start + count):
        yield RiskFlagged(run_id=f"run-{i % runs}", flag_id=str(i), **fields)


def per_partition(lab: Lab, count: int, runs: int) -> dict[int, int]:
    """How many of `flags(count, runs)` each partition gets."""
    found: dict[int, int] = defaultdict(int)
    for i in range(count):
        found[partition_for(f"run-{i % runs}", lab.partitions)] += 1
    return dict(found)
