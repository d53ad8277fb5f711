"""`python -m tests.chaos.inside.until LIMIT_S STATE [ENGINE...]`: waits for a state of the stack.

In one process: asking brokers or engines again and again from outside costs more than they do.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.integration.engine.harness import wait_for

from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

PARTITIONS = 8


class Brokers:
    """Asks the brokers what they are."""

    def __init__(self) -> None:
        self._admin = AdminClient(librdkafka_options(EngineSettings()))

    def lacking(self) -> int | None:
        """Partitions that lack a replica in sync; None while no broker answers."""
        try:
            topics = self._admin.list_topics(timeout=20).topics.values()
        except KafkaException:
            return None
        partitions = [each for topic in topics for each in topic.partitions.values()]
        return sum(len(each.isrs) < len(each.replicas) for each in partitions)


def owned(engine: str) -> int:
    """Partitions that an engine has ready; 0 while it is not ready, or does not answer."""
    try:
        with urllib.request.urlopen(f"http://{engine}:8470/readyz", timeout=5) as answer:
            found = json.load(answer)
    except (urllib.error.URLError, OSError):
        return 0
    return len(found["partitions"]) if found.get("ready") else 0


def all_ready(engines: list[str]) -> bool:
    """All partitions are ready, and each of the engines has some of them."""
    shares = [owned(engine) for engine in engines]
    return min(shares) > 0 and sum(shares) == PARTITIONS


def main(limit_s: float, state: str, *engines: str) -> None:
    if state == "ready":
        wait_for(f"{engines} ready", lambda: all_ready([*engines]), limit_s)
        return
    brokers = Brokers()
    looks = {"missed": lambda: bool(brokers.lacking()), "in_sync": lambda: brokers.lacking() == 0}
    wait_for(f"replicas {state}", looks[state], limit_s)


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
