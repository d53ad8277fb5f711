"""A simulated owner of a partition that is archived, around the product's archiver."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.contract.faulty_objects import Fault, FaultyObjects

from dalsegno.schemas import headers
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ControlEvent
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.agents import archive as archive_agent
from dalsegno.streams.agents.archive_restore import Restorer
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine.archive_bound import ArchiveBound
from dalsegno.streams.engine.errors import OutcomeUnknownError
from dalsegno.streams.engine.producers import Appended
from dalsegno.streams.engine.task import TaskState

if TYPE_CHECKING:
    from tests.simulation.archive_world import ArchiveWorld


class DiedError(BaseException):
    """The owner is gone, in the middle of what he did."""


class _Waits:
    """Awaited where the world may do something else first."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _NoMetrics:
    def count(self, *_: object, **__: object) -> None:
        """Nobody looks."""

    gauge = clear = observe = count


class Job:
    """A task of the product's, in the world's hands."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self._then: list[Callable[[Job], None]] = []

    def add_done_callback(self, then: Callable[[Job], None]) -> None:
        """Called when it has ended."""
        self._then.append(then)

    def cancelled(self) -> bool:
        """It ends by itself, and what it raises ends its owner."""
        return False

    def exception(self) -> None:
        """See `cancelled`."""

    def close(self) -> None:
        """Whoever had it is gone."""
        self._work.close()

    def goes_on(self) -> bool:
        """Up to where it waits next; False when it has ended."""
        try:
            self._work.send(None)
        except StopIteration:
            for then in self._then:
                then(self)
            return False
        return True


class _Ages:
    """Topics that keep everything: what they forget, the world decides."""

    async def kept_ms(self, _: str) -> float:
        return float("inf")


class Owner:
    """One ownership of the partition: its fold, its outputs, its archiver."""

    def __init__(self, world: ArchiveWorld, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.store, self.fold = self._restored(world.rng.random() < 0.5)
        self.saved = self.fold.position
        self.queued: list[tuple[Sequence, bytes, bytes]] = []
        self.turn: Coroutine[Any, Any, None] | None = None
        self.at_store = self.broken = False
        self.fetches: list[Job] = []
        objects = FaultyObjects(world.bucket, self.request)
        task = SimpleNamespace(
            number=0,
            fold=self.fold,
            state=TaskState.READY,
            archive=ArchiveBound(world.settings.archive, lambda: None),
            append_control=self.append,
            warm=SimpleNamespace(lost=self.lost),
        )
        context = SimpleNamespace(
            settings=world.settings, metrics=_NoMetrics(), layout=SimpleNamespace(partitions=1)
        )
        ownership: Any = SimpleNamespace(
            context=context, tasks={0: task}, saved_positions=self.saved_positions
        )
        self.task: Any = task
        self.archiver = archive_agent.Archiver(ownership, Archive(objects, "p"))
        self.archiver._ages = _Ages()  # type: ignore[assignment]
        self.restorer = Restorer(Archive(objects, "p"), ownership.context.metrics)

    def _restored(self, warm: bool) -> tuple[WarmStore | None, Partition]:
        """The fold as of the last checkpoint, with a database of its own or all in memory."""
        saved = self.world.checkpoint
        if not warm:
            return None, Partition.restore(0, list(saved.items())) if saved else Partition(0)
        store = WarmStore(MemoryTable(), "sim/0")
        store.put(saved, Place(0, 0))
        return store, Partition.open(0, store)

    def lost(self, error: WarmLost) -> None:
        """Its database cannot be read: it begins anew."""
        raise DiedError from error

    def saved_positions(self) -> dict[Any, int]:
        place = archive_agent.TopicPartition(self.world.settings.topics.events, 0)
        return {place: self.saved}

    def request(self, name: str, key: str) -> Fault | None:
        """Before a request to the store: others act, he dies, or the store has its mood."""
        return self.world.request(self, name)

    async def append(self, event: ControlEvent) -> Appended:
        world = self.world
        await _Waits()
        chance = world.rng.random()
        if chance < world.trouble:
            raise OutcomeUnknownError("as the test asked")
        offset = world.append(event)
        await _Waits()
        if chance > 1 - world.trouble:
            raise OutcomeUnknownError("as the test asked")
        return Appended(offset, world.now_ms)

    def read(self, count: int) -> None:
        """Folds so many records; their outputs queue."""
        for message in self.world.events.messages[self.fold.position :][:count]:
            if message.marker:
                continue
            for output in self.fold.apply(self.world.record(message.at)):
                if isinstance(output.action, Audit):
                    transition = output.action.transition
                    key = transition.run_id.encode()
                    self.queued.append((output.sequence, key, encode(transition)))

    def put_out(self, count: int) -> None:
        """Outputs leave in their order; those that are out already come once more."""
        topic = self.world.transitions
        for sequence, key, value in self.queued[:count]:
            stamp = [(headers.SEQUENCE, sequence.pack())]
            topic.append(self.world.now_ms, key, value, headers=stamp)
        del self.queued[:count]

    def save(self) -> None:
        """A checkpoint: never before its outputs are out, never by who is fenced."""
        if self.queued or self.epoch != self.world.epoch:
            return
        parts = self.fold.capture()
        for key, value in parts:
            if value is None:
                self.world.checkpoint.pop(key, None)
            else:
                self.world.checkpoint[key] = value
        self.saved = self.fold.position
        residence = self.fold.residence
        if self.store is not None and residence is not None:
            self.store.put(dict(parts), Place(self.saved, 0))
            residence.stored(residence.captures, self.saved)
            residence.leave(1 << 40, 1 << 60)

    def loses_its_database(self) -> None:
        """What is not in memory cannot be read any more: the next that asks for it ends this."""
        if self.store is not None:
            self.store.close()
            self.broken = True

    def fetch(self) -> None:
        """Begins to bring runs back, or goes on with one."""
        if self.at_store:
            return
        self.at_store = True
        try:
            if not self.fetches or self.world.rng.random() < 0.3:
                self.restorer.turn([self.task])
                self.fetches += self.world.spawned
                self.world.spawned.clear()
            if self.fetches:
                job = self.world.rng.choice(self.fetches)
                if not job.goes_on():
                    self.fetches.remove(job)
        finally:
            self.at_store = False

    def archive(self) -> None:
        """Goes on with a turn of the archiver, or begins one."""
        if self.at_store:
            return
        if self.turn is None:
            self.archiver._pauses.clear()  # when he acts, the world decides
        turn = self.turn or self.archiver.turn()
        self.turn, self.at_store = turn, True
        try:
            turn.send(None)
        except StopIteration:
            self.turn = None
        finally:
            self.at_store = False


async def directly(work: Callable[[], Any], name: str) -> Any:
    return work()


class Quiet:
    def info(self, *_: object, **__: object) -> None:
        """Nobody reads it."""

    warning = error = info
