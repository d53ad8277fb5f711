"""The broker itself: start, crash, return, stop.

    with EmbeddedKafka() as kafka:                  # temporary data, deleted at exit
        Producer({"bootstrap.servers": kafka.bootstrap})
    EmbeddedKafka(Path("data")).start()             # lasting data, same port again later

Order of a start: 1 claim the folder, 2 choose ports, 3 format the folder once, 4 spawn Java under
a guard, 5 wait until it answers.
"""

import base64
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from dalsegno.ops.embedded.errors import EmbeddedKafkaError, PortTakenError, StartFailedError
from dalsegno.ops.embedded.jars import KAFKA_VERSION, find_jars
from dalsegno.ops.embedded.java import find_java
from dalsegno.ops.embedded.jvm import Jvm
from dalsegno.ops.embedded.ports import answers_kafka, free_ports, is_free
from dalsegno.ops.embedded.properties import Listener, broker_properties, write_properties
from dalsegno.ops.embedded.server import EmbeddedServer
from dalsegno.ops.embedded.topics import create_topics

_LOG_BYTES_MAX = 10_000_000
_ATTEMPTS = 3
"""Another process may take a free port between our look and Java's bind."""


class EmbeddedKafka(EmbeddedServer):
    """One Kafka node in a child JVM. `config` overrides settings of the broker.

    `listeners` adds listeners beside the plain one: name → protocol (`{"SECURE": "SASL_SSL"}`).
    What they need (`listener.name.secure.…`) goes into `config`; `address` says where they are.
    """

    pid_file = "java.pid"
    stop_s = 90.0

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        port: int | None = None,
        heap: str = "256m",
        config: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        java: str | None = None,
    ) -> None:
        super().__init__(data, port, "dalsegno-kafka-")
        self._config = dict(config or {})
        self._protocols = dict(listeners or {})
        self._listeners: tuple[Listener, ...] = ()
        self.jvm = Jvm(find_java(java), tuple(find_jars(version)), heap)

    def _not_started(self, what: str) -> EmbeddedKafkaError:
        return EmbeddedKafkaError(f"the embedded broker has no {what} yet: call start() first")

    @property
    def bootstrap(self) -> str:
        """`host:port`, for `bootstrap.servers`."""
        if self.port is None:
            raise self._not_started("port")
        return f"127.0.0.1:{self.port}"

    def address(self, listener: str) -> str:
        """`host:port` of a further listener, by its name. Raises EmbeddedKafkaError."""
        for each in self._listeners:
            if each.name == listener:
                return f"127.0.0.1:{each.port}"
        raise EmbeddedKafkaError(f"no listener {listener!r}: name it in listeners=, then start()")

    @property
    def log(self) -> Path:
        """What the broker prints: warnings and errors."""
        return self.data / "kafka.log"

    def start(self, timeout_s: float = 60.0, *, write_archive: Path | None = None) -> Self:
        """Start, or come back after a crash on the same data and port.

        With `write_archive` the next clean stop writes a class archive there (10 s more).
        Raises DataInUseError, PortTakenError or StartFailedError.
        """
        if self.alive:
            return self
        with self._claimed():
            (self.data / "log").mkdir(exist_ok=True)
            if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_MAX:
                self.log.replace(self.log.with_suffix(".log.1"))
            self._start(timeout_s, write_archive)
        return self

    def _start(self, timeout_s: float, write_archive: Path | None) -> None:
        if self.port is not None and not is_free(self.port):
            raise PortTakenError(self.port)
        for _ in range(_ATTEMPTS):
            port, controller = self._choose_ports()
            properties = self.data / "server.properties"
            settings = broker_properties(
                self.data, port, controller, self._further(port, controller)
            )
            write_properties(properties, {**settings, **self._config})
            self._format(properties)
            command = self.jvm.command("kafka.Kafka", str(properties), write_archive=write_archive)
            with self.log.open("ab") as log:
                self._child.spawn(command, log)
            if self._answers(port, timeout_s):
                self._started_on(port)
                return
            self.kill()
        tail = self.log.read_text(errors="replace")[-4000:]
        raise StartFailedError("the embedded broker did not start", self.log, tail)

    def _choose_ports(self) -> tuple[int, int]:
        port = self.port if self.port is not None else self._choose_port()
        return port, next(each for each in free_ports(2) if each != port)

    def _further(self, *taken: int) -> tuple[Listener, ...]:
        """The further listeners; a restart finds them where they were if their ports are free."""
        if not self._listeners or not all(is_free(each.port) for each in self._listeners):
            drawn = free_ports(len(self._protocols) + len(taken))
            ports = [each for each in drawn if each not in taken]
            self._listeners = tuple(
                Listener(name, protocol, port)
                for (name, protocol), port in zip(self._protocols.items(), ports, strict=False)
            )
        return self._listeners

    def _format(self, properties: Path) -> None:
        if (self.data / "log" / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22].replace("-", "A")
        command = self.jvm.command(
            "kafka.tools.StorageTool", "format", "-c", str(properties), "-t", cluster
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = f"{done.stdout}{done.stderr}"
            self.log.write_text(said)
            raise StartFailedError("the broker's data folder was not formatted", self.log, said)

    def _answers(self, port: int, timeout_s: float) -> bool:
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit and self.alive:
            if answers_kafka(port) and self.alive:
                return True
            time.sleep(0.05)
        return False

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Make one topic and wait until it is there. Raises KafkaException."""
        self.create_topics({name: partitions})

    def create_topics(
        self, partitions: Mapping[str, int], config: Mapping[str, str] | None = None
    ) -> None:
        """Make topics, each with its number of partitions. Raises KafkaException."""
        create_topics(self.bootstrap, partitions, config)
