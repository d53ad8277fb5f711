"""The search for what is in force, with a progress bar."""

from typing import TypeVar

from dalsegno.ops.cli.render import progress_bar
from dalsegno.ops.kafka.in_force import InForce, find_in_force
from dalsegno.schemas.control import PartitionControl
from dalsegno.streams.engine.settings import EngineSettings

E = TypeVar("E", bound=PartitionControl)


def read_in_force(settings: EngineSettings, kind: type[E]) -> list[InForce[E]]:
    """As `find_in_force`, for people to watch."""
    with progress_bar() as bar:
        task = bar.add_task("reading the log", total=None)
        return find_in_force(
            settings,
            kind,
            lambda ahead: bar.update(task, total=ahead),
            lambda passed: bar.advance(task, passed),
        )
