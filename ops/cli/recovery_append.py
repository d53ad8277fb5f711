"""Appends a control event about recovery to every partition, with the number that follows there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dalsegno.ops.cli.append_each import append_each
from dalsegno.ops.cli.failures import Refused, Unavailable
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.schemas.control import PartitionControl

EventFor = Callable[[int, int, int], "PartitionControl"]


def append_everywhere(event: EventFor, scope: tuple[str, str] | None = None) -> int:
    """Asks the owners which numbers stand, and appends `event(partition, frozen number, released
    number)` to each. With `scope` (flow, fault point): only where exactly this is frozen; refused
    when it is nowhere. Returns how many partitions have it.
    """
    from dalsegno.ops.cli.recovery_tables import frozen_in
    from dalsegno.ops.kafka.engines import Engines
    from dalsegno.ops.kafka.reader import Reader

    settings = read_settings()
    found = {row["partition"]: row for row in Engines.find(settings).recovery("", "", 1, 1)}
    with Reader(settings) as reader:
        wanted = reader.partitions(settings.topics.events)
    missing = [str(number) for number in range(wanted) if number not in found]
    if missing:
        raise Unavailable(f"no owner of partition(s) {', '.join(missing)} answers: try again")
    rows = [found[number] for number in range(wanted)]
    if scope is not None:
        rows = [row for row in rows if frozen_in(row, *scope)]
        if not rows:
            raise Refused("this very scope is not frozen: see `dalsegno recovery preview`")
    numbers = ("partition", "frozen_number", "released_number")
    append_each(settings, [event(*(int(str(row[name])) for name in numbers)) for row in rows])
    return len(rows)
