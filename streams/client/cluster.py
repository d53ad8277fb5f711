"""Which cluster the brokers belong to: names of workers are taken in it, not on the whole host."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dalsegno.streams.client.config import ClientConfig
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.refused import Complaints, connect

_HEARD_S = 0.1


def cluster_of(config: ClientConfig) -> str:
    """The cluster's id; of brokers that tell none, their addresses as the settings name them.

    Blocks. Raises `DeliveryFailed` if no broker answers, `BrokerRefused`.
    """
    complaints = Complaints()
    properties = {**config.connection(f"{config.prefix}-cluster"), "error_cb": complaints}
    client = connect(AdminClient, properties)
    try:
        # One topic is named, as without a name the answer has every topic of the cluster.
        found = client.list_topics(config.topics.events, timeout=config.request_timeout_ms / 1_000)
    except KafkaException as error:
        client.poll(_HEARD_S)  # what librdkafka has to say is heard here
        if (refusal := complaints.refusal(properties)) is not None:
            raise refusal from error
        cause = error.args[0]
        raise DeliveryFailed("", b"", cause.name(), cause.str()) from error
    return found.cluster_id or config.bootstrap_servers
