"""The order of a checkpoint: capture, acknowledgements, one fenced transaction; failures."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.streams.engine.checkpoint import CheckpointDone, Checkpointer, Pace
from dalsegno.streams.engine.errors import EngineError, FencedError


class Fold:
    def __init__(self) -> None:
        self.position = 0

    def capture(self) -> list[tuple[bytes, bytes | None]]:
        return [(b"part", str(self.position).encode())]


class Acks:
    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waits = 0

    def queued(self) -> dict[str, int]:
        return {}

    async def acknowledged(self, _queued: dict[str, int]) -> None:
        self.waits += 1
        await self.open.wait()


class Fence:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.error: EngineError | None = None

    async def commit(
        self, writes: dict[tuple[str, int], list[tuple[bytes, bytes]]]
    ) -> dict[tuple[str, int], int]:
        if self.error is not None:
            raise self.error
        self.written += [value for entries in writes.values() for _, value in entries]
        return dict.fromkeys(writes, len(self.written))


class Bench:
    def __init__(self) -> None:
        self.fold, self.acks, self.fence = Fold(), Acks(), Fence()
        self.failures: list[EngineError] = []
        self.done: list[CheckpointDone] = []
        self.checkpointer = Checkpointer(
            self.fold,  # type: ignore[arg-type]
            self.acks,  # type: ignore[arg-type]
            self.fence,  # type: ignore[arg-type]
            ("cl", 0),
            pace=Pace(interval_s=1_000.0, events_max=10, bytes_max=1_000),
            failed=self.failures.append,
            done=self.done.append,
            clock=asyncio.get_running_loop().time,
        )

    def apply(self, count: int, size_bytes: int = 0) -> None:
        self.fold.position += count
        self.checkpointer.applied(size_bytes)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_nothing_is_written_before_the_outputs_are_acknowledged() -> None:
    bench = Bench()
    bench.apply(11)  # over the bound: captured at once
    await settle()
    assert bench.acks.waits == 1
    assert bench.fence.written == []
    bench.acks.open.set()
    await settle()
    assert bench.fence.written == [b"11"]
    assert bench.checkpointer.position == 11


async def test_the_state_written_is_that_of_the_capture() -> None:
    bench = Bench()
    bench.apply(11)
    bench.apply(5)
    bench.acks.open.set()
    await settle()
    assert bench.fence.written == [b"11"]
    assert bench.checkpointer.behind == 5
    await bench.checkpointer.close()


async def test_one_at_a_time_and_full_when_the_next_is_over_its_bound() -> None:
    bench = Bench()
    bench.apply(11)
    assert not bench.checkpointer.full
    bench.apply(11)
    assert bench.checkpointer.full
    assert bench.acks.waits <= 1
    bench.acks.open.set()
    await settle()
    assert bench.fence.written == [b"11", b"22"]
    assert not bench.checkpointer.full


async def test_a_fold_that_waits_for_a_checkpoint_is_told_when_it_may_go_on() -> None:
    """Who asks when he is told would else wait for the next checkpoint, with nothing to do."""
    bench = Bench()
    waits: list[bool] = []
    bench.checkpointer._done = lambda _: waits.append(bench.checkpointer.full)
    bench.apply(11)
    bench.apply(11)
    assert bench.checkpointer.full
    bench.acks.open.set()
    await settle()
    assert waits == [False, False]


async def test_few_large_events_are_bounded_as_many_small_ones_are() -> None:
    """What a transaction writes must not outgrow the time that it has."""
    bench = Bench()
    bench.apply(1, 1_001)  # over the bound: captured at once
    assert not bench.checkpointer.full
    bench.apply(1, 600)
    assert not bench.checkpointer.full
    bench.apply(1, 600)
    assert bench.checkpointer.full
    bench.acks.open.set()
    await settle()
    assert bench.fence.written == [b"1", b"3"]
    assert not bench.checkpointer.full


async def test_a_fenced_checkpoint_ends_all_writing() -> None:
    bench = Bench()
    bench.acks.open.set()
    bench.fence.error = FencedError("a newer owner")
    bench.apply(11)
    await settle()
    bench.fence.error = None
    bench.apply(50)
    await settle()
    assert bench.fence.written == []
    assert len(bench.failures) == 1
    assert bench.checkpointer.position == 0


async def test_settling_writes_what_is_under_way_and_then_the_rest() -> None:
    bench = Bench()
    bench.apply(11)
    bench.apply(3)
    bench.acks.open.set()
    assert await bench.checkpointer.settle(5.0)
    assert bench.fence.written == [b"11", b"14"]


async def test_settling_gives_up_in_time() -> None:
    bench = Bench()
    bench.apply(11)
    assert not await bench.checkpointer.settle(0.01)
    await bench.checkpointer.close()
    assert bench.fence.written == []


async def test_a_capture_that_raises_ends_all_writing_and_is_told_once() -> None:
    bench = Bench()
    bench.acks.open.set()

    def torn() -> list[tuple[bytes, bytes | None]]:
        raise ValueError("half of it was taken")

    whole, bench.fold.capture = bench.fold.capture, torn  # type: ignore[method-assign]
    bench.apply(11)
    bench.fold.capture = whole  # type: ignore[method-assign]
    bench.apply(50)
    await settle()
    assert bench.fence.written == []
    assert len(bench.failures) == 1


async def test_whatever_a_commit_raises_is_told_and_ends_all_writing() -> None:
    bench = Bench()
    bench.acks.open.set()
    bench.fence.error = RuntimeError("none of the client's own errors")  # type: ignore[assignment]
    bench.apply(11)
    await settle()
    bench.fence.error = None
    bench.apply(50)
    await settle()
    assert bench.fence.written == []
    assert len(bench.failures) == 1


class Keeper:
    def __init__(self) -> None:
        self.kept = 0

    def captured(self) -> None:
        pass

    def keep(self, _parts: object, _position: int | None) -> None:
        self.kept += 1
        raise ValueError("the keeper")


@pytest.mark.parametrize("who", ["keeper", "done"])
async def test_what_raises_behind_a_commit_is_told_and_ends_all_writing(who: str) -> None:
    """A partition that stands still and says nothing is worse than one that begins anew."""
    bench = Bench()
    bench.acks.open.set()
    checkpointer = bench.checkpointer
    if who == "keeper":
        checkpointer._keeper = Keeper()
    else:

        def done(_: CheckpointDone) -> None:
            raise ValueError("the done")

        checkpointer._done = done
    bench.apply(11)
    await settle()
    bench.apply(50)
    await settle()
    assert bench.fence.written == [b"11"]
    (failure,) = bench.failures
    assert who in str(failure)
    assert not await checkpointer.settle(1.0)


async def test_nothing_is_captured_of_a_fold_that_raised_inside_a_record() -> None:
    bench = Bench()
    bench.acks.open.set()
    bench.apply(5)
    bench.checkpointer.spoil()
    bench.apply(50)
    await settle()
    assert not await bench.checkpointer.settle(1.0)
    assert bench.fence.written == []
