"""The settings of the embedded broker, each with its reason."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class Listener(NamedTuple):
    """A further listener: the name in its settings, its protocol (`SASL_SSL`), its port."""

    name: str
    protocol: str
    port: int


def broker_properties(
    data: Path, port: int, controller_port: int, more: Sequence[Listener] = ()
) -> dict[str, str]:
    """server.properties of one KRaft node that is broker and controller.

    `more`: listeners beside the plain one. What a protocol needs is the caller's to add.
    """
    open_to = [f"PLAINTEXT://127.0.0.1:{port}"]
    open_to += [f"{each.name}://127.0.0.1:{each.port}" for each in more]
    protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
    protocols += [f"{each.name}:{each.protocol}" for each in more]
    internal = {
        f"{topic}.{setting}": "1"
        for topic in _INTERNAL_TOPICS
        for setting in ("replication.factor", "num.partitions")
    }
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": ",".join([*open_to, f"CONTROLLER://127.0.0.1:{controller_port}"]),
        "advertised.listeners": ",".join(open_to),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(protocols),
        "log.dirs": str(data / "log"),
        **internal,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "num.partitions": "1",
        # A misspelt topic must fail, not appear.
        "auto.create.topics.enable": "false",
        "log.message.timestamp.type": "LogAppendTime",
        # After kill -9 the broker returns once its own old session has lapsed: 9 s by default.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        # A worker commits before it starts anything: by default each commit waits 5 ms for company.
        "group.coordinator.append.linger.ms": "0",
        # Small: by default 128 MiB, and a compaction at most every 15 s.
        "log.cleaner.dedupe.buffer.size": str(2 << 20),
        "log.cleaner.backoff.ms": "500",
        # Index files are preallocated: 10 MiB each by default, two per partition.
        "log.index.size.max.bytes": str(1 << 20),
        "log.segment.delete.delay.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "num.io.threads": "2",
        "num.network.threads": "2",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """As one file that Java reads."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
