"""Deliberate bugs of the world's engines and workers; those of the core are in `core_mutants.py`.

Each is a context manager that breaks one rule of DESIGN for as long as it is entered. The
simulation must find every one of them within a bounded number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from tests.simulation import body
from tests.simulation.engine import Engine, Session
from tests.simulation.log import Changelog, Entry, Failed, Producer
from tests.simulation.worker import Attempt, Worker


class Mutant(msgspec.Struct, frozen=True):
    """A bug by name; it must be found within `seeds` seeds."""

    name: str
    bug: Callable[[], AbstractContextManager[None]]
    seeds: int = 300


def patching(break_it: Callable[[pytest.MonkeyPatch], None], seeds: int) -> Mutant:
    """A bug that is made of patches; its name is the function's."""

    @contextmanager
    def bug() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patches:
            break_it(patches)
            yield

    return Mutant(break_it.__name__, bug, seeds)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    with patch.object(owner, name, value):
        yield


def checkpoint_before_outputs() -> AbstractContextManager[None]:
    """The state may say "done" about outputs that never left."""
    return replaced(Session, "outputs_are_out", lambda self, needed: True)


@contextmanager
def acknowledged_before_checkpoint() -> Iterator[None]:
    """The position is kept apart from the state, and is ahead of it after a crash."""
    restore, adopt = Engine.restore, Session.adopt

    def late_adopt(self: Session, entry: Entry) -> None:
        adopt(self, entry)
        self.world.acknowledged[self.number] = entry.offset + 1

    def late_restore(self: Engine, number: int, parts: Any) -> Any:
        partition = restore(self, number, parts)
        partition.position = max(partition.position, self.world.acknowledged.get(number, 0))
        return partition

    with patch.object(Session, "adopt", late_adopt), patch.object(Engine, "restore", late_restore):
        yield


def skip_too_eager() -> AbstractContextManager[None]:
    """Outputs are skipped by their source event, though only some of its outputs are out."""

    def already_out(self: Session, output: Any) -> bool:
        tail = self.tails.get(output.action.channel)
        return tail is not None and output.sequence.offset <= tail.offset + 1

    return replaced(Session, "already_out", already_out)


def sends_on_after_failure() -> AbstractContextManager[None]:
    """An output that failed is forgotten and the next ones are sent."""
    send = Producer.send

    def careless(self: Producer, *args: Any, **named: Any) -> Any:
        ack = send(self, *args, **named)
        if named.get("sequence") is not None:
            answer = type(ack)()
            ack.then(lambda got: answer.resolve(got if isinstance(got, Entry) else SENT))
            self.renew()
            return answer
        return ack

    return replaced(Producer, "send", careless)


SENT = Entry(-1, 0, "", None)


@contextmanager
def outputs_not_idempotent() -> Iterator[None]:
    """Outputs leave through a producer that may reorder and double."""
    init = Session.__init__

    def plain(self: Session, *args: Any) -> None:
        init(self, *args)
        self.producer.idempotent = False

    with patch.object(Session, "__init__", plain):
        yield


def changelog_without_fence() -> AbstractContextManager[None]:
    """A zombie's checkpoint is taken."""
    commit = Changelog.commit

    def unfenced(self: Changelog, epoch: int, position: int, parts: Any) -> bool:
        return commit(self, self.epoch, position, parts)

    return replaced(Changelog, "commit", unfenced)


def zombie_fences_blindly() -> AbstractContextManager[None]:
    """An engine that was put out never asks the group, and takes the fence back again and again."""

    def live(self: Engine) -> Any:
        group = self.world.engine_group
        group.join(self.process)
        while True:
            for number in group.beat(self.process) or ():
                if number not in self.tasks:
                    self.tasks[number] = 1
                    self.process.spawn(self.own(number, 1))
            yield 1_000

    stack = patch.multiple(Engine, live=live, may_own_again=lambda self, number: True)
    return entered(stack)


@contextmanager
def entered(manager: Any) -> Iterator[None]:
    with manager:
        yield


def checkpoint_loses_page() -> AbstractContextManager[None]:
    """One dirty part in ten is not written."""
    commit = Changelog.commit

    def lossy(self: Changelog, epoch: int, position: int, parts: Any) -> bool:
        kept = [part for part in parts if part[0].startswith(b"\0") or position % 10]
        return commit(self, epoch, position, kept)

    return replaced(Changelog, "commit", lossy)


def checkpoints_overtake() -> AbstractContextManager[None]:
    """A checkpoint does not wait for the one before it."""

    def checkpoints(self: Session) -> Any:
        while self.alive:
            yield 100
            self.engine.process.spawn(self.write_checkpoint())

    return replaced(Session, "checkpoints", checkpoints)


def no_ticks() -> AbstractContextManager[None]:
    """The owner never appends a tick, so live time stands and nothing times out."""

    def ticks(self: Session) -> Any:
        yield 0

    return replaced(Session, "ticks", ticks)


def start_by_unchecked() -> AbstractContextManager[None]:
    """A worker starts a body however late its StepStarted was appended."""
    return replaced(Worker, "in_time", lambda self, ack, handoff: True)


def commit_after_start() -> AbstractContextManager[None]:
    """A worker starts what it polled and commits afterwards."""

    def begin_early(self: Worker, taken: Any) -> bool:
        self.begin(taken)
        return True

    return replaced(Worker, "begin_early", begin_early)


def commit_unknown_is_failed() -> AbstractContextManager[None]:
    """A commit of unknown outcome is taken for done without reading it back."""
    commit = Worker.commit

    def hopeful(self: Worker, marks: Any) -> Any:
        yield from commit(self, marks)
        return True

    return replaced(Worker, "commit", hopeful)


def mark_is_latest() -> AbstractContextManager[None]:
    """The mark follows the last record polled, also when it is a repeat of an old one."""
    return replaced(Worker, "higher", lambda self, mark, sequence: sequence)


def repeats_not_dropped() -> AbstractContextManager[None]:
    """Every handoff that is polled is started."""
    return replaced(Worker, "is_repeat", lambda self, mark, sequence: False)


def polls_beyond_slots() -> AbstractContextManager[None]:
    """A worker takes more than it has free slots for."""
    poll = Worker.poll
    return replaced(Worker, "poll", lambda self, free: poll(self, 8))


def starts_what_it_released() -> AbstractContextManager[None]:
    """A worker gives a handoff back and runs it all the same."""
    report = Worker.report

    def forgetful(self: Worker, attempt: Attempt, event: Any) -> Any:
        ack = yield from report(self, attempt, event)
        if attempt.released and not attempt.started:
            attempt.started = True
            self.world.checker.on_body(attempt, ack, self)
        return ack

    return replaced(Worker, "report", forgetful)


def journal_ignored() -> AbstractContextManager[None]:
    """A worker does every effect again, whatever the journal in the handoff says."""
    return replaced(body.Body, "journal", lambda self, effect, occurrence: None)


def effect_key_of_attempt() -> AbstractContextManager[None]:
    """The idempotency key is made anew for each attempt."""
    make = body.Body.key_of
    return replaced(
        body.Body,
        "key_of",
        lambda self, effect, number: f"{make(self, effect, number)}/{self.handoff.epoch}",
    )


def reports_not_repeated() -> AbstractContextManager[None]:
    """A start of unknown outcome counts as acknowledged."""
    return entered(
        patch.multiple(
            Worker,
            acknowledged=lambda self, ack: True,
            in_time=lambda self, ack, handoff: (
                isinstance(ack, Failed) or ack.at_ms < handoff.start_by_ms
            ),
        )
    )


MODEL_MUTANTS = (
    Mutant("checkpoint before its outputs are acknowledged", checkpoint_before_outputs),
    Mutant("position acknowledged ahead of the checkpoint", acknowledged_before_checkpoint),
    Mutant("output skip too eager", skip_too_eager),
    Mutant("outputs sent on after a failed one", sends_on_after_failure),
    Mutant("outputs through a plain producer", outputs_not_idempotent),
    Mutant("changelog without a fence", changelog_without_fence, 500),
    Mutant("zombie fences without asking the group", zombie_fences_blindly, 500),
    Mutant("checkpoint loses a dirty page", checkpoint_loses_page),
    Mutant("two checkpoints at once", checkpoints_overtake),
    Mutant("owner writes no ticks", no_ticks),
    Mutant("start_by unchecked by the worker", start_by_unchecked, 400),
    Mutant("commit after start", commit_after_start),
    Mutant("commit of unknown outcome taken for done", commit_unknown_is_failed),
    Mutant("dedupe by latest instead of high-water mark", mark_is_latest, 800),
    Mutant("repeated handoffs not dropped", repeats_not_dropped, 600),
    Mutant("worker polls beyond its free slots", polls_beyond_slots),
    Mutant("worker starts what it released", starts_what_it_released),
    Mutant("journal in the handoff ignored", journal_ignored),
    Mutant("effect key made anew per attempt", effect_key_of_attempt),
    Mutant("start of unknown outcome taken for acknowledged", reports_not_repeated),
)
