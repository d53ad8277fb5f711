"""The search for what is in force, with a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dalsegno.ops.cli.render import progress_bar

if TYPE_CHECKING:
    from dalsegno.ops.kafka.in_force import InForce
    from dalsegno.schemas.control import PartitionControl
    from dalsegno.streams.engine.settings import EngineSettings

E = TypeVar("E", bound="PartitionControl")


def read_in_force(settings: EngineSettings, kind: type[E]) -> list[InForce[E]]:
    """As `find_in_force`, for people to watch."""
    from dalsegno.ops.kafka.in_force import find_in_force

    with progress_bar() as bar:
        task = bar.add_task("reading the log", total=None)
        return find_in_force(
            settings,
            kind,
            lambda ahead: bar.update(task, total=ahead),
            lambda passed: bar.advance(task, passed),
        )
