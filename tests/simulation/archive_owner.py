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
from dalsegno.streams.agents import archive as archive_agent
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.sequence import Sequence
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

    gauge = clear = count


class _Ages:
    """Topics that keep everything: what they forget, the world decides."""

    async def kept_ms(self, _: str) -> float:
        return float("inf")


class Owner:
    """One ownership of the partition: its fold, its outputs, its archiver."""

    def __init__(self, world: ArchiveWorld, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        saved = world.checkpoint
        self.fold = Partition.restore(0, list(saved.items())) if saved else Partition(0)
        self.saved = self.fold.position
        self.queued: list[tuple[Sequence, bytes, bytes]] = []
        self.turn: Coroutine[Any, Any, None] | None = None
        self.at_store = False
        objects = FaultyObjects(world.bucket, self.request)
        task = SimpleNamespace(
            number=0,
            fold=self.fold,
            state=TaskState.READY,
            archive=ArchiveBound(world.settings.archive, lambda: None),
            append_control=self.append,
        )
        context = SimpleNamespace(
            settings=world.settings, metrics=_NoMetrics(), layout=SimpleNamespace(partitions=1)
        )
        ownership: Any = SimpleNamespace(
            context=context, tasks={0: task}, saved_positions=self.saved_positions
        )
        self.archiver = archive_agent.Archiver(ownership, Archive(objects, "p"))
        self.archiver._ages = _Ages()  # type: ignore[assignment]

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
        for key, value in self.fold.capture():
            if value is None:
                self.world.checkpoint.pop(key, None)
            else:
                self.world.checkpoint[key] = value
        self.saved = self.fold.position

    def archive(self) -> None:
        """Goes on with a turn of the archiver, or begins one."""
        if self.at_store:
            return
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
