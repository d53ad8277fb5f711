"""A fold whose log is gone, put down so that its runs can be carried elsewhere. Pure."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from dalsegno.schemas import codec
from dalsegno.schemas.control import RunRestored, StallSuspected, Verdict
from dalsegno.schemas.events import RunPaused
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

SOURCE: Final = "archive-rebuild"
LOST: Final = "its Kafka is gone, and with it what was in flight"
Attempts = MutableMapping[tuple[str, str], Attempt]


def follow(partition: Partition, attempts: Attempts) -> None:
    """Keep the attempts in flight up to date."""
    for key, attempt in partition.drain_in_flight():
        if attempt is None:
            attempts.pop(key, None)
        else:
            attempts[key] = attempt


def give_up(partition: Partition, attempts: Attempts) -> set[str]:
    """Pause every run that is not at rest, and give up what is in flight; the runs that it paused.

    `attempts`: all that are in flight.
    """
    paused: set[str] = set()
    for each in list(partition.carrying.live()):
        if not each.at_rest and not each.paused:
            paused.add(each.run_id)
            pause = RunPaused(run_id=each.run_id, request_id=f"{SOURCE}-pause", source=SOURCE)
            apply_here(partition, pause)
    for (run_id, step), attempt in attempts.items():
        verdict = StallSuspected(
            source=SOURCE,
            run_id=run_id,
            step=step,
            epoch=attempt.epoch,
            verdict=Verdict.SILENT if attempt.running else Verdict.LOST,
            events_offset=partition.position,
            heartbeats_at_ms=partition.log_ms,
            evidence=LOST,
        )
        apply_here(partition, verdict)
    partition.carrying.empty_lines()
    return paused


def apply_here(partition: Partition, event: RunPaused | StallSuspected | RunRestored) -> None:
    """An event that is in no log: only this fold ever sees it."""
    key, value = event.run_id.encode(), codec.encode(event)
    partition.apply(Record(partition.position, partition.log_ms, key, value, event))
