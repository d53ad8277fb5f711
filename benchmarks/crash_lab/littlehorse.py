"""LittleHorse under the crash workload: its server on the embedded Kafka, one worker.

Its jars come by their Maven coordinates; it needs the Java that this project gets as a wheel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.crash_lab import requests
from benchmarks.crash_lab.driven import Driven
from benchmarks.crash_lab.installing import NotInstallable, python_with

from dalsegno.ops.embedded import EmbeddedKafka, EmbeddedKafkaError
from dalsegno.ops.embedded.jars import fetch_jars
from dalsegno.ops.embedded.java import find_java
from dalsegno.ops.embedded.ports import free_ports

VERSION: Final = "1.2.1"
SERVER: Final = f"io.littlehorse:littlehorse-server:{VERSION}"
JAVA_FEATURE_MIN: Final = 25
HEAP: Final = "1g"
PARTITIONS: Final = 12
# Kafka's own defaults: the embedded one is set up for less.
BROKER: Final = {"num.network.threads": "3", "num.io.threads": "8"}


def install() -> Callable[[], LittleHorse]:
    """Finds Java, fetches jars and client once. Raises `NotInstallable`."""
    try:
        java = find_java()
        if java.feature < JAVA_FEATURE_MIN:
            raise NotInstallable(f"it needs Java {JAVA_FEATURE_MIN}; {java.path} is {java.feature}")
        jars = fetch_jars([SERVER], f"LittleHorse {VERSION}")
    except EmbeddedKafkaError as error:
        raise NotInstallable(str(error)) from error
    python = python_with("littlehorse", f"littlehorse-client=={VERSION}")
    return lambda: LittleHorse(java.path, jars, python)


class LittleHorse(Driven):
    """Its server keeps its ports and its state over a crash; Kafka lives on."""

    name = "littlehorse"

    def __init__(self, java: str, jars: list[str], python: Path) -> None:
        super().__init__(python)
        self._java, self._jars = java, jars

    def _prepare(self, folder: Path, ends: ExitStack) -> dict[str, str]:
        self._kafka = EmbeddedKafka(folder / "kafka", heap=HEAP, config=BROKER).start()
        ends.callback(self._kafka.stop)
        api, inner, health = map(str, free_ports(3))
        return {
            "LHS_KAFKA_BOOTSTRAP_SERVERS": self._kafka.bootstrap,
            "LHS_CLUSTER_ID": "crash",
            "LHS_INSTANCE_ID": "1",
            "LHS_REPLICATION_FACTOR": "1",
            "LHS_CLUSTER_PARTITIONS": str(PARTITIONS),
            "LHS_STATE_DIR": str(folder / "littlehorse"),
            "LHS_SHOULD_CREATE_TOPICS": "true",
            "LHS_CORE_STREAM_THREADS": "2",
            "LHS_STREAMS_SESSION_TIMEOUT": "10000",
            "LHS_HEALTH_SERVICE_PORT": health,
            "LHS_INTERNAL_BIND_PORT": inner,
            "LHS_INTERNAL_ADVERTISED_PORT": inner,
            "LHS_INTERNAL_ADVERTISED_HOST": "localhost",
            "LHS_LISTENERS": f"PLAIN:{api}",
            "LHS_LISTENERS_PROTOCOL_MAP": "PLAIN:PLAIN",
            "LHS_ADVERTISED_LISTENERS": f"PLAIN://localhost:{api}",
            "LHC_API_HOST": "localhost",
            "LHC_API_PORT": api,
            "LHW_NUM_WORKER_THREADS": str(requests.IN_FLIGHT),
        }

    def _server_command(self, folder: Path) -> list[str]:  # noqa: ARG002 - told by the environment
        options = [f"-Xmx{HEAP}", "-XX:+UseZGC", "-Dlog4j.shutdownHookEnabled=false"]
        path = os.pathsep.join(self._jars)
        return [self._java, *options, "-cp", path, "io.littlehorse.App"]

    def _beneath(self) -> dict[str, int]:
        return {"broker": self._kafka.pid}
