"""A real Apache Kafka as a child process: one KRaft node, no Docker, no fixed ports."""

from dalsegno.ops.embedded.broker import EmbeddedKafka
from dalsegno.ops.embedded.errors import (
    DataInUseError,
    EmbeddedKafkaError,
    JarsUnavailableError,
    JavaNotFoundError,
    PortTakenError,
    StartFailedError,
)
from dalsegno.ops.embedded.jars import KAFKA_VERSION

__all__ = [
    "KAFKA_VERSION",
    "DataInUseError",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "JarsUnavailableError",
    "JavaNotFoundError",
    "PortTakenError",
    "StartFailedError",
]
