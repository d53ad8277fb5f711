"""The `lab` fixture: fresh topics on the session's broker, engines ended afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab

from dalsegno.ops.embedded import EmbeddedKafka


@pytest.fixture
def lab(kafka: EmbeddedKafka, fresh_prefix: str, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(kafka.bootstrap, fresh_prefix, tmp_path)
    made.create_topics()
    yield made
    made.stop()
