"""How far webhooks have come: by their groups' offsets and the escalations, without engines."""

from collections.abc import Sequence

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from dalsegno.ops.kafka.reader import Reader, ReadError
from dalsegno.schemas.control import Webhook
from dalsegno.streams.agents.webhooks.feed import group_of
from dalsegno.streams.agents.webhooks.ledger import Ledger, LedgerError
from dalsegno.streams.client.refused import raise_if_no_right
from dalsegno.streams.engine.restore import sequence_of
from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

_ASK_S = 5.0


class Delivery(msgspec.Struct, frozen=True):
    """One target. `unsettled`: packages that are neither delivered nor dropped; `oldest_ms`: when
    the oldest of them was appended, Unix ms, 0 without one.
    """

    name: str
    url: str
    unsettled: int
    oldest_ms: int


def read_deliveries(
    reader: Reader, settings: EngineSettings, webhooks: Sequence[Webhook]
) -> list[Delivery]:
    """Every target, in the order of the policy. Raises ReadError, BrokerRefused."""
    return [_read(reader, settings, each) for each in webhooks]


def _read(reader: Reader, settings: EngineSettings, webhook: Webhook) -> Delivery:
    topic = settings.topics.escalations
    places = [TopicPartition(topic, number) for number in range(reader.partitions(topic))]
    unsettled: list[int] = []
    for place in _committed(settings, webhook.name, places):
        try:
            ledger = Ledger.load(max(0, place.offset), place.metadata or "")
        except LedgerError:
            ledger = Ledger(place.offset)
        for record in reader.read(topic, place.partition, ledger.base):
            sequence = sequence_of(record.headers)
            if ledger.read(record.offset, 0 if sequence is None else sequence.count):
                unsettled.append(record.at_ms)
    return Delivery(webhook.name, webhook.url, len(unsettled), min(unsettled, default=0))


def _committed(
    settings: EngineSettings, name: str, places: list[TopicPartition]
) -> list[TopicPartition]:
    group = group_of(settings, name)
    consumer = Consumer({**librdkafka_options(settings), "group.id": group})
    try:
        found = list(consumer.committed(places, timeout=_ASK_S))
    except KafkaException as error:
        raise_if_no_right(error.args[0], f"group {group}")
        raise ReadError(f"offsets of group {group}: {error}") from error
    finally:
        consumer.close()
    for place in found:
        raise_if_no_right(place.error, f"group {group}")
    return found
