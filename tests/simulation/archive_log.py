"""Topics as the archiver reads them: records with offsets, a beginning that moves, no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dalsegno.client import Flow
from dalsegno.schemas.control import ClockTick
from dalsegno.schemas.events import RunEvent, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.outputs import Transition
from dalsegno.schemas.values import pack

ROOM = ClockTick(partition=0, number=-1)
"""Takes a place in the log and changes nothing: a tick that is never fresh."""
_STEPS = 4


def observed_events(run_id: str) -> Iterator[RunEvent]:
    """A run that services drive by themselves: between two steps nothing of it is in flight."""
    flow = Flow("watch", ttl="20h")
    for number in range(_STEPS):
        flow.observed(name=f"s{number}", reads=["amount"], writes=[f"out{number}"], timeout="10h")
    context = pack({"amount": 7, "text": "x" * 200})
    yield RunStarted(run_id=run_id, flow="watch", flow_version=1, plan=flow.plan(), context=context)
    for number in range(_STEPS):
        step = {"run_id": run_id, "step": f"s{number}", "epoch": 0, "attempt": 1}
        yield StepStarted(**step)
        yield StepCompleted(**step, ops=pack([["set", [f"out{number}"], f"{run_id}/{number}"]]))


class Message(msgspec.Struct, frozen=True):
    """A record in the shape of librdkafka's."""

    at: int
    at_ms: int
    key_bytes: bytes
    value_bytes: bytes
    header_list: list[tuple[str, bytes]]
    event: Any = None
    marker: bool = False
    """The end of somebody's transaction: it has an offset, and nobody is given it."""

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at_ms

    def key(self) -> bytes:
        return self.key_bytes

    def value(self) -> bytes:
        return self.value_bytes

    def headers(self) -> list[tuple[str, bytes]]:
        return self.header_list


class Topic:
    """One partition. `low`: the first record that it has not forgotten."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.low = 0

    @property
    def end(self) -> int:
        return len(self.messages)

    def append(
        self,
        at_ms: int,
        key: bytes,
        value: bytes,
        event: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> int:
        self.messages.append(Message(self.end, at_ms, key, value, headers or [], event))
        return self.end - 1

    def mark(self, at_ms: int) -> None:
        """A transaction of somebody's ends here."""
        self.messages.append(Message(self.end, at_ms, b"", b"", [], marker=True))


class Reader:
    """What `LogReader` gives, of the topics of one world."""

    def __init__(self, topics: dict[str, Topic]) -> None:
        self._topics = topics

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found = self._topics[topic]
        return found.low, found.end

    def read(
        self, topic: str, partition: int, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        found = self._topics[topic]
        first = found.low if start is None else start
        assert first >= found.low, f"{topic}: {first} is asked for, {found.low} is the first"
        last = found.end if end is None else end
        yield from (each for each in found.messages[first:last] if not each.marker)

    def close(self) -> None:
        """Nothing is held."""


Trails = dict[str, list[tuple[Any, ...]]]


def remember(trails: Trails, found: Transition) -> None:
    """What became of a run, in order, but not that it left and came back."""
    if found.cause != "RunRestored":
        what = found.cause, found.outcome, found.reason, found.run_version_after, found.diff
        trails.setdefault(found.run_id, []).append(what)
