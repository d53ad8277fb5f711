"""The lab as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.client.lab import Lab

from dalsegno.ops.embedded import EmbeddedKafka


@pytest.fixture
def lab(kafka: EmbeddedKafka, fresh_prefix: str) -> Iterator[Lab]:
    lab = Lab(kafka.bootstrap, fresh_prefix, ("default", "other"))
    yield lab
    lab.close()
