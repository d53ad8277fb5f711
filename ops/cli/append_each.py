"""One control event for each of several partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dalsegno.ops.cli.failures import Unavailable

if TYPE_CHECKING:
    from dalsegno.schemas.control import PartitionControl
    from dalsegno.streams.engine.settings import EngineSettings


def append_each(settings: EngineSettings, events: Sequence[PartitionControl]) -> None:
    """Appends each to its partition, in this order. Raises `Unavailable`, which says how far it
    came.
    """
    from dalsegno.ops.kafka.writer import AppendError, Writer

    writer = Writer(settings)
    for event in events:
        try:
            writer.append_control(event)
        except AppendError as error:
            raise Unavailable(f"{error} (partitions before {event.partition} have it)") from error
