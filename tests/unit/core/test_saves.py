"""Progress and saves of an attempt: the highest stands, the first save always counts."""

from __future__ import annotations

from tests.unit.core.log import (
    Log,
    assert_restores,
    chain,
    handoffs,
    row,
)
from tests.unit.core.test_attempts import failed, until_handoff

from dalsegno.schemas.events import (
    StepProgressed,
)
from dalsegno.schemas.outputs import Outcome


def progressed(progress: int, save: bytes | None = None, epoch: int = 1) -> StepProgressed:
    return StepProgressed(run_id="r", step="s0", epoch=epoch, progress=progress, save=save)


def saves(log: Log) -> list[bytes]:
    return [value for key, value in log.partition.parts().items() if key[:1] == b"v"]


def test_progress_stands_by_the_highest_also_when_the_failure_overtakes_it() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=5, save=b"five"))
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=4, save=b"four"))
    assert log.outcomes == [Outcome.DUPLICATE]
    log.put(failed("s0", progress=7))
    assert row(log, "s0").progress == 7
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=9, save=b"nine"))
    assert log.outcomes == [Outcome.APPLIED]
    assert row(log, "s0").progress == 9
    assert_restores(log)
    for _ in range(5):
        out = handoffs(log.tick())
        if out:
            break
    assert out[0].save == b"nine", "the next attempt gets the last save"


def test_the_save_goes_when_the_step_completes() -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0")
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=1, save=b"x"))
    assert any(key[:1] == b"v" for key in log.partition.parts())
    log.partition.capture()
    log.done("s0")
    assert any(key[:1] == b"v" and value is None for key, value in log.partition.capture())
    assert not any(key[:1] == b"v" for key in log.partition.parts())


def test_the_first_save_of_an_attempt_counts_also_at_progress_nought() -> None:
    log = Log()
    log.start(chain(1))
    for epoch in (1, 2):
        log.began("s0", epoch=epoch)
        log.put(progressed(0, epoch=epoch))
        assert log.outcomes == [Outcome.DUPLICATE], "nought is where an attempt begins"
        log.put(progressed(0, b"first", epoch))
        assert log.outcomes == [Outcome.APPLIED]
        assert_restores(log)
        log.put(progressed(0, b"first", epoch))
        assert log.outcomes == [Outcome.DUPLICATE]
        log.put(progressed(0, b"second", epoch))
        assert log.outcomes == [Outcome.DUPLICATE], "a later save needs a higher progress"
        assert saves(log) == [b"first"]
        log.put(progressed(1, b"third", epoch))
        assert saves(log) == [b"third"]
        log.put(failed("s0", epoch=epoch))
        until_handoff(log)


def test_a_first_save_that_was_overtaken_counts_and_the_highest_progress_stands() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.put(progressed(5))
    log.put(progressed(3, b"three"))
    assert log.outcomes == [Outcome.APPLIED]
    assert row(log, "s0").progress == 5
    log.put(progressed(4, b"four"))
    assert log.outcomes == [Outcome.DUPLICATE]
    assert saves(log) == [b"three"]


def test_a_first_save_that_the_failure_overtook_counts_once() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    log.put(failed("s0"))
    for outcome in (Outcome.APPLIED, Outcome.DUPLICATE):
        log.put(progressed(0, b"first"))
        assert log.outcomes == [outcome]
        assert_restores(log)
    assert saves(log) == [b"first"]
    until_handoff(log)
    log.began("s0", epoch=2)
    log.put(progressed(0, b"again", epoch=2))
    log.put(failed("s0", epoch=2))
    log.put(progressed(0, b"late", epoch=2))
    assert log.outcomes == [Outcome.DUPLICATE], "that attempt had its first save"
