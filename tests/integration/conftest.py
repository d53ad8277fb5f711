"""Fixtures of tests on a real Kafka: what they start ends with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab

from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.s3 import EmbeddedS3


@pytest.fixture
def lab(
    kafka: EmbeddedKafka, fresh_prefix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    """Fresh topics on the session's broker, of as many partitions as the module's `PARTITIONS`."""
    partitions = getattr(request.module, "PARTITIONS", 4)
    made = Lab(kafka.bootstrap, fresh_prefix, tmp_path, partitions)
    made.create_topics()
    yield made
    made.stop()


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[tuple[Lab, EmbeddedKafka]]:
    """A broker of our own, which may be killed."""
    with EmbeddedKafka() as broker:
        lab = Lab(broker.bootstrap, "own", tmp_path)
        lab.create_topics()
        yield lab, broker
        lab.stop()


@pytest.fixture
def s3() -> Iterator[EmbeddedS3]:
    """A store of our own."""
    with EmbeddedS3() as made:
        yield made
