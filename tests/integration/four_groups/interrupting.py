"""In a process that is to be interrupted: it kills or freezes itself where its schedule says.

The schedule and what of it has happened are files, so a process that was killed goes on with what
is left of its own. What its steps read is written down as well, before their bodies begin.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.four_groups.boundaries import Act, Boundary, Interruption

from dalsegno.schemas.control import DecisionMade
from dalsegno.schemas.events import AttemptEvent, StepCompleted
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.commits import Commits
from dalsegno.streams.client.effects import Call, Effects
from dalsegno.streams.client.runner import Runner
from dalsegno.streams.client.session import Session
from dalsegno.streams.core.actions import Audit, Dispatch, Escalate, Output
from dalsegno.streams.core.signals.meaning import asks

if TYPE_CHECKING:
    from dalsegno.streams.engine.fence import FencedProducer
    from dalsegno.streams.engine.outputs import Outputs

SCHEDULE = "schedule.json"


def write_down(path: Path, line: object) -> None:
    """Appends a line that outlives the process."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def lines_of(path: Path) -> list[Any]:
    """Whole lines of such a file."""
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


class Interrupter:
    """Counts how often the process comes to the boundary that is next for it."""

    def __init__(self, name: str, folder: Path) -> None:
        self._hits = folder / f"{name}.hits"
        whole = [Interruption(*each) for each in json.loads((folder / SCHEDULE).read_text())]
        mine = [each for each in whole if each.process == name]
        self._left = mine[len(lines_of(self._hits)) :]
        self._count = 0
        self._lock = threading.Lock()

    def at(self, boundary: Boundary) -> None:
        """The process is at a boundary, in any thread."""
        with self._lock:
            if not self._left or self._left[0].boundary != boundary:
                return
            self._count += 1
            if self._count < self._left[0].nth:
                return
            hit, self._count = self._left.pop(0), 0
            write_down(self._hits, hit)
        os.kill(os.getpid(), signal.SIGKILL if hit.act == Act.KILL else signal.SIGSTOP)


def in_worker(name: str, folder: Path) -> None:
    """Puts the boundaries of a worker into the SDK of this process."""
    at = Interrupter(name, folder).at
    reads = folder / f"{name}.reads"
    commit, report_start, start = Commits.commit, Session._report_start, Runner.start
    act, confirm, report = Effects._act, Effects._confirm, Runner.report

    def committing(self: Commits, ends: Any, places: Any, stopping: Callable[[], bool]) -> set[int]:
        at(Boundary.BEFORE_COMMIT)
        done = commit(self, ends, places, stopping)
        if done:
            at(Boundary.AFTER_COMMIT)
        return done

    def reporting_start(self: Session, taken: Any, step: Any) -> None:
        report_start(self, taken, step)
        at(Boundary.BEFORE_START_ACK)

    def starting(self: Runner, attempt: Attempt) -> None:
        at(Boundary.AFTER_START_ACK)
        handoff = attempt.handoff
        read = sha256(handoff.inputs).hexdigest()
        version = handoff.run_version
        write_down(reads, [handoff.run_id, handoff.step, handoff.epoch, version, read])
        start(self, attempt)

    async def acting(self: Effects, call: Call) -> object:
        at(Boundary.BEFORE_EFFECT)
        return await act(self, call)

    async def confirming(self: Effects, call: Call, result: object) -> None:
        at(Boundary.AFTER_EFFECT)
        await confirm(self, call, result)

    async def reporting(self: Runner, attempt: Attempt, event: AttemptEvent) -> None:
        if not isinstance(event, StepCompleted):
            await report(self, attempt, event)
            return
        sent = asyncio.ensure_future(report(self, attempt, event))
        await asyncio.sleep(0)  # one turn of the loop: it is on its way
        at(Boundary.BEFORE_COMPLETED_ACK)
        await sent
        at(Boundary.AFTER_COMPLETED_ACK)

    Commits.commit = committing  # type: ignore[method-assign]
    Session._report_start = reporting_start  # type: ignore[method-assign]
    Runner.start = starting  # type: ignore[method-assign]
    Runner.report = reporting  # type: ignore[method-assign]
    Effects._act = acting  # type: ignore[method-assign]
    Effects._confirm = confirming  # type: ignore[method-assign]


def in_engine(name: str, folder: Path) -> None:
    """Puts the boundaries of an engine into this process."""
    # Here, so that a worker that was killed is back without loading an engine.
    from dalsegno.streams.engine.fence import FencedProducer
    from dalsegno.streams.engine.outputs import Outputs

    at = Interrupter(name, folder).at
    commit, add = FencedProducer.commit, Outputs.add
    asked: set[str] = set()

    async def committing(self: FencedProducer, writes: Any) -> None:
        at(Boundary.BEFORE_CHECKPOINT)
        await commit(self, writes)
        at(Boundary.AFTER_CHECKPOINT)

    def adding(self: Outputs, outputs: Iterable[Output]) -> None:
        whole = tuple(outputs)
        causes = {o.action.transition.cause for o in whole if isinstance(o.action, Audit)}
        if StepCompleted.__name__ in causes and _leaves_the_queue(whole):
            at(Boundary.BETWEEN_QUEUES)
        if DecisionMade.__name__ in causes:
            at(Boundary.DECISION_APPENDED)
        elif asked:
            at(Boundary.WHILE_ASKED)
        asked.update(
            o.action.escalation.escalation_id
            for o in whole
            if isinstance(o.action, Escalate) and asks(o.action.escalation)
        )
        add(self, whole)

    FencedProducer.commit = committing  # type: ignore[method-assign]
    Outputs.add = adding  # type: ignore[method-assign]


def _leaves_the_queue(outputs: Sequence[Output]) -> bool:
    return any(isinstance(o.action, Dispatch) and o.action.queue != "default" for o in outputs)
