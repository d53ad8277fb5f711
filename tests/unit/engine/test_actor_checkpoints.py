"""Checkpoints of fault points: none follows one that has failed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.streams.engine.actor import ActorTask
from dalsegno.streams.engine.errors import OutcomeUnknownError


class Refusing:
    """A fenced producer whose every transaction fails."""

    def __init__(self) -> None:
        self.commits: list[Any] = []

    async def commit(self, writes: Any) -> None:
        self.commits.append(writes)
        raise OutcomeUnknownError("the transaction timed out")


async def test_nothing_is_captured_after_a_checkpoint_that_failed() -> None:
    """What it captured is in no later one, so the state that they leave would have holes."""
    now_s = 100.0
    task = object.__new__(ActorTask)
    producer = Refusing()
    fold = SimpleNamespace(position=1, capture=lambda: [(b"k", b"v")])
    settings = SimpleNamespace(
        topics=SimpleNamespace(faults_changelog="faults-changelog"), checkpoint_interval_ms=250
    )
    task.number, task.fold = 0, fold  # type: ignore[assignment]
    task._context = SimpleNamespace(clock=lambda: now_s, settings=settings)  # type: ignore[assignment]
    task._producer, task._commit = producer, None  # type: ignore[assignment]
    task._committed, task._committed_s = 0, 0.0
    task._checkpoint()
    assert task._commit is not None
    await asyncio.wait([task._commit])
    now_s, fold.position = 105.0, 2  # it took its time to fail, and more has come meanwhile
    with pytest.raises(OutcomeUnknownError):
        task._checkpoint()
    assert len(producer.commits) == 1
