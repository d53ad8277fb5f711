"""What the services of the oracle's runs do: plans, attempts of every kind, and rubbish. Seeded.

Every step writes one field whose value is a function of run and step alone, so the context that a
run must end with is known beforehand. A stale report writes another value: it must never show.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from dalsegno.schemas import values
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ClockTick
from dalsegno.schemas.events import (
    AttemptEvent,
    EffectConfirmed,
    EffectIntended,
    FailureType,
    InformationSupplied,
    RiskFlagged,
    RunCancelled,
    RunEvent,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepReleased,
    StepStarted,
)
from dalsegno.schemas.outputs import Handoff
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.plan import Plan, RetryPolicy, StepPlan
from dalsegno.streams.core.effects import effect_key, recovery_key

NEEDS = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
PROGRESS_MAX = 26
TIMEOUT_MS = 3_000
RETRY = RetryPolicy(max_attempts=50, max_infra_attempts=100, initial_ms=50, max_ms=400)
CANCELLED_AT = "d"

Raw = tuple[int, bytes | None, bytes | None]


def started(run_id: str, *, managed: bool) -> RunStarted:
    """A diamond of four steps, given out by the engine or run by the service itself."""
    steps = tuple(
        StepPlan(
            name=name,
            needs=needs,
            reads=("input", *needs),
            writes=(name,),
            queue="default" if managed else "",
            timeout_ms=TIMEOUT_MS if managed else 600_000,
            retry=RETRY,
        )
        for name, needs in NEEDS.items()
    )
    return RunStarted(
        run_id=run_id,
        flow="oracle-managed" if managed else "oracle-observed",
        flow_version=1,
        plan=Plan(steps=steps),
        context=values.pack({"input": run_id}),
        ttl_ms=3_600_000,
        reply_to="oracle",
    )


def context_of(run_id: str) -> dict[str, str]:
    """What a run that succeeds ends with."""
    return {"input": run_id, **{name: value_of(run_id, name) for name in NEEDS}}


def value_of(run_id: str, step: str) -> str:
    return f"{run_id}/{step}"


def _completed(who: dict[str, object], value: str) -> StepCompleted:
    ops = values.pack([["set", [who["step"]], value]])
    return StepCompleted(**who, ops=ops, reply_to="oracle")  # type: ignore[arg-type]


def attempt(
    random: Random, run_id: str, step: str, epoch: int, number: int = 0
) -> Iterator[AttemptEvent]:
    """One whole attempt: start, an effect, progress, success."""
    who: dict[str, object] = {"run_id": run_id, "step": step, "epoch": epoch, "attempt": number}
    yield from begun(random, who)
    yield _completed(who, value_of(run_id, step))


def begun(random: Random, who: dict[str, object]) -> Iterator[AttemptEvent]:
    run_id, step = str(who["run_id"]), str(who["step"])
    yield StepStarted(**who, worker="oracle", reply_to="oracle")  # type: ignore[arg-type]
    key = effect_key(recovery_key(run_id, step), "pay", 0)
    yield EffectIntended(**who, effect="pay", occurrence=0, key=key)  # type: ignore[arg-type]
    for progress in range(1, random.randint(PROGRESS_MAX // 2, PROGRESS_MAX)):
        save = b"x" * random.randint(0, 200) if random.random() < 0.3 else None
        yield StepProgressed(**who, progress=progress, save=save)  # type: ignore[arg-type]
    yield EffectConfirmed(**who, effect="pay", occurrence=0, result=values.pack("paid"))  # type: ignore[arg-type]


def answer(random: Random, handoff: Handoff) -> Iterator[RunEvent]:
    """What a worker says to a handoff: mostly it does the step; sometimes it fails, gives it back,
    dies in the middle, or never starts it.
    """
    run_id, step, epoch = handoff.run_id, handoff.step, handoff.epoch
    who: dict[str, object] = {"run_id": run_id, "step": step, "epoch": epoch, "attempt": 0}
    if epoch > 1 and random.random() < 0.4:  # a zombie of the epoch before
        yield _completed(who | {"epoch": epoch - 1}, "of a superseded attempt")
    if random.random() < 0.03:
        yield _completed(who | {"epoch": epoch + 1}, "of an epoch that nobody gave out")
    if step == CANCELLED_AT and is_cancelled(run_id):
        yield RunCancelled(run_id=run_id, request_id="cancel", reason="not wanted")
        yield from attempt(random, run_id, step, epoch)  # by a worker that has not heard of it
        return
    luck = random.random()
    if luck < 0.05:
        yield StepReleased(**who, reason="stopping")  # type: ignore[arg-type]
    elif luck < 0.10:
        yield from begun(random, who)
        yield StepFailed(**who, failure_type=FailureType.TRANSIENT, reply_to="oracle")  # type: ignore[arg-type]
    elif luck < 0.12:
        yield StepStarted(**who, worker="oracle")  # type: ignore[arg-type]
    elif luck > 0.01 + 0.12:
        yield from attempt(random, run_id, step, epoch)


def is_cancelled(run_id: str) -> bool:
    return run_id.startswith("m") and int(run_id[1:]) % 20 == 7


def observed(random: Random, run_id: str) -> Iterator[RunEvent]:
    """The whole life of a run that its service drives itself."""
    start = started(run_id, managed=False)
    if random.random() < 0.3:  # overtaken by its own first report
        yield StepStarted(run_id=run_id, step="a", epoch=0, attempt=1)
    yield start
    for step in NEEDS:
        number = 1
        while random.random() < 0.15:
            who: dict[str, object] = {"run_id": run_id, "step": step, "epoch": 0, "attempt": number}
            yield from begun(random, who)
            yield StepFailed(**who, failure_type=FailureType.TRANSIENT)  # type: ignore[arg-type]
            number += 1
        if number > 1:
            who = {"run_id": run_id, "step": step, "epoch": 0, "attempt": number}
            yield StepStarted(**who, worker="oracle")  # type: ignore[arg-type]
            yield _completed(who | {"attempt": number - 1}, "of a superseded attempt")
        yield RiskFlagged(run_id=run_id, flag_id=step, flag="large")
        yield from attempt(random, run_id, step, 0, number)
    ops = values.pack([["set", ["note"], "too late"]])
    yield InformationSupplied(run_id=run_id, information_id="i", ops=ops, origin="test")


def rubbish(random: Random, event: RunEvent, partitions: int) -> Raw:
    """A record that is no event: partition, key, value."""
    home = partition_for(event.run_id, partitions)
    key, value = event.run_id.encode(), encode(event)
    tick = encode(ClockTick(partition=home, number=2**40))
    kinds: tuple[Raw, ...] = (
        (home, key, random.randbytes(random.randint(0, 300))),
        (home, key, None),
        (home, None, None),
        (home, key, value[: random.randrange(len(value))]),
        (home, key, value + b"\x00"),
        (home, key, value[:2] + random.randbytes(8) + value[10:]),
        ((home + 1) % partitions, key, value),
        (home, b"another", value),
        (home, str(home).encode(), tick),  # a control event that nobody signed
    )
    return random.choice(kinds)
