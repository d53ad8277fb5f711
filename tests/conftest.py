"""Fixtures that every kind of test may use."""

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from dalsegno.ops.embedded import KAFKA_VERSION, EmbeddedKafka

_numbers = itertools.count(1)
# A test is right or wrong, whatever else the machine does meanwhile.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One real broker for the whole session: isolate by topic (`fresh_prefix`), never kill it."""
    version = os.environ.get("DALSEGNO_TEST_KAFKA_VERSION", KAFKA_VERSION)
    with EmbeddedKafka(version=version) as broker:
        yield broker


@pytest.fixture
def fresh_prefix() -> str:
    """A topic prefix that no other test of this session has."""
    return f"t{os.getpid()}-{next(_numbers)}"
