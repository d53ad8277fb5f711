"""Which packages are open: read from the escalations and the transitions, without an engine.

A package is closed by the transition that takes its step out of the states that wait for people,
by a decision about the run, by the run's end or erasure, or by a newer package about the same
step. Packages whose time to answer is over are not open, and nothing older is read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from dalsegno.ops.kafka.reader import Reader
from dalsegno.schemas import codec
from dalsegno.schemas.outputs import Escalation, Outcome, RunState, StepState, Transition
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.tombstones import erased_name, is_erased_name
from dalsegno.streams.engine.settings import EngineSettings

_ASKING = frozenset({StepState.ESCALATED, StepState.MISSING_INFO, StepState.AWAITING_APPROVAL})
_CLOCKS_APART_MS = 3_600_000
"""Transitions are searched from this long before the first package: clocks of engines differ."""

K = TypeVar("K", Escalation, Transition)


class NoSuchPackageError(Exception):
    """No open package has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no open package {name}: see `dalsegno escalations list`")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which packages are wanted; empty: all."""

    flow: str = ""
    step: str = ""
    failure_type: str = ""
    dependency: str = ""
    cause: str = ""
    run: str = ""
    notices: bool = False

    def takes(self, package: Escalation) -> bool:
        """Whether the package is wanted."""
        if package.asked == "notice" and not self.notices:
            return False
        pairs = (
            (self.flow, package.flow),
            (self.step, package.step),
            (self.failure_type, package.failure_type),
            (self.dependency, package.dependency),
            (self.cause, package.cause),
            (self.run, package.run_id),
        )
        return all(wanted in ("", found) for wanted, found in pairs)


class Board:
    """The open packages of one partition, from its records in order."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Escalation] = {}

    def package(self, package: Escalation) -> None:
        """A package, or a reminder of one, takes the place of the one before."""
        self._open[package.run_id, package.step] = package

    def transition(self, transition: Transition) -> None:
        """Closes what the transition answers."""
        run_id, offset = transition.run_id, transition.cause_offset
        after, before = transition.run_state_after, transition.run_state_before
        if after in FINAL_RUNS:
            erased = is_erased_name(run_id)
            for key, package in list(self._open.items()):
                name = erased_name(key[0]) if erased else key[0]
                if name == run_id and package.offset <= offset:
                    del self._open[key]
            return
        if transition.outcome is not Outcome.APPLIED:
            return
        if after is RunState.COMPENSATING and before is not after:
            self._close((run_id, ""), offset)
        for change in transition.changes:
            if change.before in _ASKING and change.after is not change.before:
                self._close((run_id, change.step), offset)
        if transition.cause == "DecisionMade" and not transition.step:
            self._close((run_id, ""), offset)

    def _close(self, key: tuple[str, str], offset: int) -> None:
        package = self._open.get(key)
        if package is not None and package.offset < offset:
            del self._open[key]

    def open(self, now_ms: int) -> list[Escalation]:
        """What waits for people as of now, oldest first."""
        waiting = [each for each in self._open.values() if each.answer_by_ms > now_ms]
        return sorted(waiting, key=lambda each: (each.at_ms, each.escalation_id))


def read_open(
    reader: Reader, settings: EngineSettings, now_ms: int, wanted: Filter | None = None
) -> list[Escalation]:
    """Open packages of all partitions, oldest first. Raises ReadError."""
    wanted = wanted or Filter()
    topics = settings.topics
    found: list[Escalation] = []
    for partition in range(reader.partitions(topics.escalations)):
        packages = [
            each
            for each in _decoded(reader, topics.escalations, partition, Escalation)
            if each.answer_by_ms > now_ms
        ]
        if not packages:
            continue
        board = Board()
        since = min(each.at_ms for each in packages) - _CLOCKS_APART_MS
        start = reader.offset_at(topics.transitions, partition, since)
        for package in packages:
            board.package(package)
        for transition in _decoded(reader, topics.transitions, partition, Transition, start):
            board.transition(transition)
        found += [each for each in board.open(now_ms) if wanted.takes(each)]
    return sorted(found, key=lambda each: (each.at_ms, each.escalation_id))


def find_open(packages: Iterable[Escalation], name: str) -> Escalation:
    """The open package of this name. Raises NoSuchPackageError."""
    found = next((each for each in packages if each.escalation_id == name), None)
    if found is None:
        raise NoSuchPackageError(name)
    return found


def _decoded(
    reader: Reader,
    topic: str,
    partition: int,
    kind: type[K],
    start: int | None = None,
) -> Iterator[K]:
    for record in reader.read(topic, partition, start):
        value = codec.decode_if(kind, record.value)
        if value is not None:
            yield value
