"""Where a process can be interrupted, and which interruptions a seed has for a group."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Final, NamedTuple


class Group(StrEnum):
    """The four groups."""

    NORMAL = "normal"
    FAILURE = "failure and retry"
    MACHINES = "across queues and machines"
    PEOPLE = "human takeover and on"


class Boundary(StrEnum):
    """A place between two things of which only the first has happened."""

    BEFORE_COMMIT = "polled; the handoff's commit not sent"
    AFTER_COMMIT = "the handoff is committed; nothing is started"
    BEFORE_START_ACK = "StepStarted is sent; not acknowledged"
    AFTER_START_ACK = "StepStarted is acknowledged; the body not begun"
    BEFORE_EFFECT = "the effect is intended; its receiver was not asked"
    AFTER_EFFECT = "the receiver has applied the effect; it is not confirmed"
    BEFORE_COMPLETED_ACK = "StepCompleted is sent; not acknowledged"
    AFTER_COMPLETED_ACK = "StepCompleted is acknowledged; the slot not free"
    BEFORE_CHECKPOINT = "outputs are acknowledged; the checkpoint not begun"
    AFTER_CHECKPOINT = "the checkpoint is committed; nobody here knows"
    BETWEEN_QUEUES = "a step is completed; the handoff to another queue not sent"
    WHILE_ASKED = "a person is asked and has not answered"
    DECISION_APPENDED = "the decision is in the log; nothing of it has left"


class Act(StrEnum):
    """What happens to the process there."""

    KILL = "kill"
    FREEZE = "freeze"


class Interruption(NamedTuple):
    """At the `nth` time that `process` comes to `boundary`; a freeze `lasts_ms`."""

    process: str
    boundary: Boundary
    nth: int
    act: Act
    lasts_ms: int


WORKERS: Final = ("worker-1", "worker-2")
OF_WORKERS: Final = tuple(Boundary)[:8]
_OF_ENGINES: Final = (Boundary.BEFORE_CHECKPOINT, Boundary.AFTER_CHECKPOINT)
OF_ENGINES: Final[dict[Group, tuple[Boundary, ...]]] = {
    Group.NORMAL: (*_OF_ENGINES, Boundary.BETWEEN_QUEUES),
    Group.FAILURE: (*_OF_ENGINES, Boundary.BETWEEN_QUEUES),
    Group.MACHINES: (*_OF_ENGINES, Boundary.BETWEEN_QUEUES),
    Group.PEOPLE: (*_OF_ENGINES, Boundary.WHILE_ASKED, Boundary.DECISION_APPENDED),
}
ENGINES: Final[dict[Group, tuple[str, ...]]] = {
    group: ("engine-1", "engine-2") if group is Group.MACHINES else ("engine-1",) for group in Group
}
_KILLS_PERCENT: Final = 70
# Longer than the workers' lease, or not: both have to be right.
_FREEZES_MS: Final = (400, 2_600)


def applicable(group: Group) -> tuple[Boundary, ...]:
    """Every boundary that runs of the group come to."""
    return (*OF_WORKERS, *OF_ENGINES[group])


def schedule(seed: int, group: Group) -> list[Interruption]:
    """Each boundary once, for some process; in the order in which each process meets its own."""
    random = Random(f"{seed}/{group}")
    # A worker of the queue behind takes no effect-free steps: it meets every boundary, too.
    processes = dict.fromkeys(OF_WORKERS, WORKERS)
    processes |= dict.fromkeys(OF_ENGINES[group], ENGINES[group])
    order = list(applicable(group))
    random.shuffle(order)
    return [
        Interruption(
            random.choice(processes[boundary]),
            boundary,
            random.randint(1, 3),
            Act.KILL if random.randrange(100) < _KILLS_PERCENT else Act.FREEZE,
            random.choice(_FREEZES_MS),
        )
        for boundary in order
    ]
