"""`python -m tests.chaos.inside.replicas`: how many partitions lack a replica in sync."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from dalsegno.streams.engine.security import librdkafka_options
from dalsegno.streams.engine.settings import EngineSettings

if __name__ == "__main__":
    admin = AdminClient(librdkafka_options(EngineSettings()))
    topics = admin.list_topics(timeout=20).topics.values()
    partitions = [each for topic in topics for each in topic.partitions.values()]
    print(sum(len(each.isrs) < len(each.replicas) for each in partitions))
