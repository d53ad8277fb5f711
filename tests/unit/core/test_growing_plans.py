"""An agent that plans one step at a time: what an extension writes does not grow with the plan."""

from __future__ import annotations

from tests.unit.core.log import Log, assert_restores, chain, handoffs, step, view

from dalsegno.schemas.events import PlanExtended
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.streams.core.partition import Partition


def extend(log: Log, i: int, *, last: bool = False) -> None:
    more = step(f"s{i}", needs=(f"s{i - 1}",), reads=(f"f{i - 1}",), writes=(f"f{i}",))
    log.put(PlanExtended(run_id="r", extension_id=f"{i}", steps=(more,), last=last))
    assert log.outcomes == [Outcome.APPLIED]


def captured(log: Log, changelog: dict[bytes, bytes]) -> int:
    """Takes a capture over; returns its bytes, the partition's own part left out."""
    size = 0
    for key, value in log.partition.capture():
        if value is None:
            changelog.pop(key, None)
        else:
            changelog[key] = value
        size += 0 if key == b"\0partition" else len(key) + len(value or b"")
    return size


def test_what_an_extension_writes_is_its_own_and_the_parts_are_the_plan() -> None:
    log = Log()
    log.policy(stub_keep_ms=5_000)
    log.start(chain(1))
    changelog: dict[bytes, bytes] = {}
    captured(log, changelog)
    sizes = []
    for i in range(1, 120):
        log.began(f"s{i - 1}")
        extend(log, i)
        out = log.done(f"s{i - 1}")
        assert [h.step for h in handoffs(out)] == [f"s{i}"]
        sizes.append(captured(log, changelog))
    assert max(sizes[-16:]) < 1.5 * max(sizes[:16])
    assert changelog == log.partition.parts()
    assert_restores(log)
    digest = view(log).plan_digest
    log.partition = Partition.restore(0, changelog.items())
    assert view(log).plan_digest == digest
    log.began("s119")
    extend(log, 120, last=True)
    log.done("s119")
    log.began("s120")
    log.done("s120")
    assert view(log).state is RunState.SUCCEEDED
    log.tick(6)
    captured(log, changelog)
    left = {key for key in changelog if not key.startswith(b"e")}  # durations learned, bounded
    assert left == {b"\0partition"}, "all parts of the plan have gone with the run"
