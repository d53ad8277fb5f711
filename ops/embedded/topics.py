"""Topics in one call, for tests and demos."""

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

_TIMEOUT_S = 30.0


def create_topics(
    bootstrap: str, partitions: Mapping[str, int], config: Mapping[str, str] | None = None
) -> None:
    """Create each topic with so many partitions and wait until all are there.

    Raises KafkaException for the first that cannot be made (it exists, a bad name or setting).
    """
    # The client stays referenced until all futures are done: a collected one fails them.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(name, num_partitions=count, replication_factor=1, config=dict(config or {}))
        for name, count in partitions.items()
    ]
    futures = admin.create_topics(wanted, operation_timeout=_TIMEOUT_S)
    failures = [failed for future in futures.values() if (failed := future.exception(_TIMEOUT_S))]
    if failures:
        first = failures[0]
        raise first if isinstance(first, KafkaException) else KafkaException(first)
