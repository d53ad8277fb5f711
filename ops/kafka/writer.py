"""Append single records to the log, acknowledged by all replicas before a call returns."""

from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.signing import NoKeyError, key_in_force
from dalsegno.schemas import codec, headers
from dalsegno.schemas.control import PartitionControl, PolicySet, RunControl
from dalsegno.streams.client.refused import Complaints, connect, raise_if_no_right
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

__all__ = ["AppendError", "NoKeyError", "Signed", "Writer"]

_DELIVERY_S = 30
_FULL_S = 0.1
Signed = tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]
"""Key, value and headers of a record."""


class AppendError(Exception):
    """A record was not acknowledged: it may or may not be in the log. Repeating is safe."""


class Writer:
    """An idempotent producer; every append names its partition."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._keys: dict[int, str] = {}
        self._complaints = Complaints()
        self._options = {
            **librdkafka_options(settings),
            "error_cb": self._complaints,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": _DELIVERY_S * 1000,
        }
        self._producer = connect(Producer, self._options)

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        with_headers: Sequence[tuple[str, bytes]] = (),
    ) -> int:
        """One record; returns its offset. Raises AppendError, BrokerRefused."""
        failures: list[KafkaError] = []
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(message.offset() or 0)

        self._producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=delivered,
            headers=list(with_headers),
        )
        left = self._producer.flush(_DELIVERY_S + 5)
        self._raise_for(topic, partition, left, failures)
        return offsets[0]

    def append_all(self, topic: str, partition: int, records: Iterable[Signed]) -> None:
        """Many records in their order; they may be in flight together. Raises AppendError,
        BrokerRefused: then those that were first are in the log, and the rest may be.
        """
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for key, value, with_headers in records:
            while not failures:
                try:
                    self._producer.produce(
                        topic, value, key, partition,
                        on_delivery=delivered, headers=list(with_headers),
                    )  # fmt: skip
                except BufferError:
                    self._producer.poll(_FULL_S)
                else:
                    self._producer.poll(0)
                    break
            if failures:
                break
        left = self._producer.flush(_DELIVERY_S + 5)
        self._raise_for(topic, partition, left, failures)

    def _raise_for(
        self, topic: str, partition: int, left: int, failures: Sequence[KafkaError]
    ) -> None:
        """Raises AppendError, BrokerRefused where not all of it was acknowledged."""
        if not left and not failures:
            return
        if (refusal := self._complaints.refusal(self._options)) is not None:
            raise refusal
        for failure in failures:
            raise_if_no_right(failure, topic)
        why = failures[0].str() if failures else "no acknowledgement in time"
        raise AppendError(f"{topic}[{partition}]: {why}; check the brokers and repeat")

    def key(self, partition: int) -> str:
        """The MAC key that signs for a partition, see `key_in_force`: looked up once.

        Raises NoKeyError, ReadError, BrokerRefused.
        """
        if not self._settings.mac_keys:
            raise NoKeyError
        if partition not in self._keys:
            with Reader(self._settings) as reader:
                self._keys[partition] = key_in_force(self._settings, reader, partition)
        return self._keys[partition]

    def signed(self, partition: int, event: RunControl) -> Signed:
        """A control event about a run, under its MAC. Raises as `key`."""
        key_id = self.key(partition)
        value = codec.encode(event)
        mac = self._settings.keyring.sign(key_id, self._settings.topics.events, partition, value)
        return event.run_id.encode(), value, ((headers.MAC, mac),)

    def append_control(self, event: PartitionControl) -> None:
        """A control event about one partition, under its MAC. Raises AppendError, and as `key`."""
        key_id = self.key(event.partition)
        topic, value = self._settings.topics.events, codec.encode(event)
        mac = self._settings.keyring.sign(key_id, topic, event.partition, value)
        self.append(topic, event.partition, b"%d" % event.partition, value, [(headers.MAC, mac)])
        if isinstance(event, PolicySet):
            # From here on its list counts, which no checkpoint has yet.
            next_key = self._settings.signing_key_in(event.policy.mac_keys)
            self._keys[event.partition] = next_key or key_id
