"""What a long run costs: its last step as much as its first, and progress leaves nothing behind."""

from __future__ import annotations

from tests.unit.core.log import Log, chain, plan_of, step

from dalsegno.schemas.events import StepProgressed
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.partition import Partition

STEPS = 5_000
YEAR_MS = 365 * 24 * 3_600_000


def captured(partition: Partition) -> int:
    """Bytes of what changed since the last capture."""
    return sum(len(value or b"") for _, value in partition.capture())


def state_bytes(partition: Partition) -> int:
    return sum(map(len, partition.parts().values()))


def test_the_last_of_five_thousand_steps_costs_what_the_tenth_did() -> None:
    log = Log()
    log.start(chain(STEPS), ttl_ms=YEAR_MS)
    captured(log.partition)
    cost: list[int] = []
    for number in range(STEPS):
        log.began(f"s{number}")
        log.done(f"s{number}")
        cost.append(captured(log.partition))
    assert log.partition.run("r").state is RunState.SUCCEEDED  # type: ignore[union-attr]
    assert max(cost[-1_000:-1]) <= 2 * max(cost[10:110])


def test_progress_is_no_history() -> None:
    log = Log()
    log.start(plan_of(step("s", timeout_ms=YEAR_MS // 100)), ttl_ms=YEAR_MS)
    log.began("s")

    def report(progress: int) -> None:
        log.put(StepProgressed(run_id="r", step="s", epoch=1, progress=progress))

    report(1_000)
    size = state_bytes(log.partition)
    for progress in range(1_001, 9_000):
        report(progress)
    assert abs(state_bytes(log.partition) - size) <= 16
