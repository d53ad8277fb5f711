"""Consumer groups: who owns which partition, until when, and what a queue's group has committed."""

from __future__ import annotations

import msgspec
from tests.simulation.clock import Process, Scheduler

from dalsegno.streams.core.sequence import Sequence


class Group:
    """Members by name, their last sign of life, and the assignment of partitions.

    A member learns of a change only with its next heartbeat; until then it may go on as a zombie.
    A process that joins under the name of another replaces it at once (static membership).
    """

    def __init__(self, scheduler: Scheduler, partitions: int, session_ms: int) -> None:
        self.scheduler = scheduler
        self.session_ms = session_ms
        self.members: dict[str, Process] = {}
        self.seen_ms: dict[str, int] = {}
        self.owner: dict[int, str] = dict.fromkeys(range(partitions), "")
        self.generation = 0

    def join(self, process: Process) -> None:
        known = process.name in self.members
        self.members[process.name] = process
        self.seen_ms[process.name] = self.scheduler.now_ms
        if not known:
            self.rebalance()

    def is_member(self, process: Process) -> bool:
        return self.members.get(process.name) is process

    def beat(self, process: Process) -> tuple[int, ...] | None:
        """The partitions of this member, or None if it is no longer one."""
        if not self.is_member(process):
            return None
        self.seen_ms[process.name] = self.scheduler.now_ms
        return tuple(number for number, name in self.owner.items() if name == process.name)

    def expire(self) -> None:
        """Put out the members that were not heard of within the session timeout."""
        limit = self.scheduler.now_ms - self.session_ms
        gone = [name for name, seen in self.seen_ms.items() if seen < limit]
        for name in gone:
            self.evict(name)

    def evict(self, name: str) -> None:
        if self.members.pop(name, None) is not None:
            self.seen_ms.pop(name, None)
            self.rebalance()

    def rebalance(self) -> None:
        """Deal the partitions to the members anew; partitions stay where they can."""
        self.generation += 1
        names = list(self.members)
        if not names:
            self.owner = dict.fromkeys(self.owner, "")
            return
        fair = -(-len(self.owner) // len(names))
        load = dict.fromkeys(names, 0)
        for number, name in self.owner.items():
            if name in load and load[name] < fair:
                load[name] += 1
            else:
                self.owner[number] = ""
        for number, name in self.owner.items():
            if not name:
                lightest = min(names, key=lambda each: load[each])
                self.owner[number] = lightest
                load[lightest] += 1


class Mark(msgspec.Struct, frozen=True, gc=False):
    """What a queue's group has committed for one partition, with who wrote it."""

    offset: int = 0
    sequence: Sequence | None = None
    worker: str = ""
    incarnation: int = 0


class QueueGroup(Group):
    """The group of a queue's workers: it also keeps the committed offsets and marks."""

    def __init__(self, scheduler: Scheduler, partitions: int, session_ms: int) -> None:
        super().__init__(scheduler, partitions, session_ms)
        self.committed: dict[int, Mark] = {number: Mark() for number in range(partitions)}

    def commit(self, process: Process, generation: int, marks: dict[int, Mark]) -> bool:
        """All or nothing; refused for an old generation and for partitions that others own."""
        if not self.is_member(process) or generation != self.generation:
            return False
        if any(self.owner[number] != process.name for number in marks):
            return False
        self.committed.update(marks)
        return True
