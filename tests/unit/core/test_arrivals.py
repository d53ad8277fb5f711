"""Events that come early, records that cannot be read, runs that are quarantined, control kinds."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    START_MS,
    Log,
    answers,
    assert_restores,
    chain,
    dead_letters,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)

from dalsegno.schemas.control import (
    ArchiveConfirmed,
    ClockTick,
    Policy,
    PolicySet,
    RulesChanged,
)
from dalsegno.schemas.events import (
    FailureType,
    RunCancelled,
    RunPaused,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepStarted,
)
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState
from dalsegno.streams.core.controls import RulesUnknown
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Unreadable
from dalsegno.streams.core.runstate import RunHead


def service(name: str, **fields: object) -> StepCompleted:
    event = StepCompleted(run_id="r", step=name, epoch=0, attempt=1, ops=b"\x90")
    return msgspec.structs.replace(event, **fields)


def test_events_ahead_of_the_start_wait_and_are_applied_in_their_order_at_its_time() -> None:
    log = Log()
    log.put(StepStarted(run_id="r", step="a", epoch=0, attempt=1))
    log.put(service("a"))
    assert log.outcomes == []
    assert log.partition.waiting == 2
    assert view(log).kind == "early"
    assert_restores(log)
    log.now_ms += 5_000
    out = log.start(plan_of(step("a", queue=""), step("b", needs=("a",))), reply_to="me")
    assert log.partition.waiting == 0
    assert log.outcomes == [Outcome.APPLIED] * 3
    assert [h.step for h in handoffs(out)] == ["b"]
    assert [t.cause_offset for t in transitions(out)] == [2, 0, 1]
    assert {o.sequence.offset for o in out} == {2}
    assert [o.sequence.index for o in out] == list(range(len(out)))
    assert {t.at_ms for t in transitions(out)} == {log.now_ms}
    assert_restores(log)


def test_waiting_survives_a_restore() -> None:
    log = Log()
    log.put(service("a"))
    log.partition = Partition.restore(0, log.partition.parts().items())
    log.start(plan_of(step("a", queue="")))
    assert view(log).state is RunState.SUCCEEDED


def test_beyond_its_deadline_what_waits_is_a_dead_letter_with_its_bytes() -> None:
    log = Log()
    log.put(service("a"), value=b"original", headers=(("h", b"1"),))
    out = log.tick(60)
    (letter,) = dead_letters(out)
    assert (letter.value, letter.headers, letter.key) == (b"original", (("h", b"1"),), b"r")
    assert (letter.letter.reason, letter.letter.offset, letter.letter.run_id) == ("early", 0, "r")
    assert log.partition.run("r") is None
    assert log.partition.waiting == 0


@pytest.mark.parametrize("bound", [{"early_events_max": 2}, {"early_bytes_max": 25}])
def test_beyond_its_bound_an_early_event_is_a_dead_letter(bound: dict[str, int]) -> None:
    log = Log()
    log.policy(**bound)
    for _ in range(3):
        log.put(service("a"), value=b"0123456789")
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    assert log.partition.waiting == 2


def test_what_waits_for_a_start_that_is_refused_is_refused_with_it() -> None:
    log = Log()
    log.put(service("a", reply_to="svc"))
    out = log.start(plan_of(step("a", queue="nowhere")))
    assert log.outcomes == [Outcome.REFUSED, Outcome.REFUSED]
    assert [a.reason for a in answers(out) if a.reply_to == "svc"] == ["start_refused"]
    assert log.partition.waiting == 0


def test_an_unreadable_record_costs_only_itself() -> None:
    log = Log()
    log.start(chain(1))
    out = log.put(Unreadable("bad_mac", "no key", kind="ClockTick"), value=b"\x00junk")
    (letter,) = dead_letters(out)
    assert (letter.letter.reason, letter.letter.kind, letter.value) == (
        "bad_mac",
        "ClockTick",
        b"\x00junk",
    )
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    log.began("s0")
    assert log.outcomes == [Outcome.APPLIED]


def test_an_unreadable_record_moves_log_time() -> None:
    log = Log()
    log.put(Unreadable("bad_frame", "x"), at_ms=START_MS + 7)
    assert log.partition.log_ms == START_MS + 7


def break_run(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the next completion raise in our own code."""

    def raising(*_: object) -> None:
        raise ZeroDivisionError("ours")

    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.units.settle", raising)
        log.out = log.done("s0", value=b"the bytes")  # type: ignore[attr-defined]


def test_what_raises_quarantines_its_run_as_it_was_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(2))
    log.start(chain(1), run_id="other")
    log.began("s0")
    before = view(log)
    counts = log.partition.output_counts
    break_run(log, monkeypatch)
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    (letter,) = dead_letters(log.outputs)
    assert (letter.letter.reason, letter.letter.run_id) == ("apply_raised", "r")
    after = view(log)
    assert after.state is RunState.QUARANTINED
    assert after.steps == before.steps
    assert after.context == before.context
    assert "ours" in after.detail
    numbers = log.partition.output_counts
    assert numbers["queue.default"] == counts["queue.default"], "numbers of what was taken back too"
    assert_restores(log)
    log.began("s0", run_id="other")
    log.done("s0", run_id="other")
    assert view(log, "other").state is RunState.SUCCEEDED


def test_even_where_nothing_may_come_early_a_quarantined_runs_events_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.policy(early_events_max=0)
    log.start(chain(2))
    log.began("s0")
    break_run(log, monkeypatch)
    log.put(RunPaused(run_id="r", request_id="p"))
    assert log.outcomes == []
    assert log.partition.waiting == 1


def test_a_quarantined_runs_events_wait_and_a_cancel_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.policy(early_events_max=2)
    log.start(chain(2))
    log.began("s0")
    break_run(log, monkeypatch)
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=3, reply_to="w"))
    log.put(RunPaused(run_id="r", request_id="p"))
    assert log.partition.waiting == 2
    assert_restores(log)
    log.done("s0")
    assert log.outcomes == [Outcome.DEAD_LETTERED], "bounded"
    assert handoffs(log.tick(600)) == []
    out = log.put(RunCancelled(run_id="r", request_id="c"))
    assert log.outcomes == [Outcome.APPLIED, Outcome.REFUSED, Outcome.REFUSED]
    assert [a.answer for a in answers(out)] == [AnswerType.REFUSED]
    assert log.partition.waiting == 0
    assert view(log).state is RunState.CANCELLED


def test_a_quarantined_run_expires_with_its_time_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.start(chain(1), ttl_ms=30_000)
    log.began("s0")
    break_run(log, monkeypatch)
    log.put(RunPaused(run_id="r", request_id="p"))
    log.tick(30)
    assert view(log).state is RunState.EXPIRED
    assert log.partition.waiting == 0


def test_a_timer_that_raises_costs_its_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.start(chain(1), ttl_ms=20_000)
    log.start(chain(1), run_id="z", ttl_ms=20_000)

    def raising(draft: object) -> None:
        if draft.run.id == "r":  # type: ignore[attr-defined]
            raise ValueError("ours")

    from dalsegno.streams.core import units

    real = units.settle

    def settle(draft: object) -> None:
        raising(draft)
        real(draft)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(units, "settle", settle)
        log.tick(21)
    assert view(log).state is RunState.QUARANTINED
    assert view(log, "z").state is RunState.EXPIRED
    assert log.partition.next_log_deadline_ms is not None


def test_a_start_that_raises_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.put(service("a"))

    def raising(*_: object) -> None:
        raise ValueError("ours")

    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.units.settle", raising)
        log.start(plan_of(step("a", queue="")))
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    assert view(log).kind == "early"
    assert_restores(log)
    log.start(plan_of(step("a", queue="")))
    assert view(log).state is RunState.SUCCEEDED


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_exhausted_memory_or_stack_stops_the_partition(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    log.start(chain(1))

    def raising(*_: object) -> None:
        raise error

    monkeypatch.setattr("dalsegno.streams.core.units.settle", raising)
    with pytest.raises(error):
        log.began("s0")


LATER = [
    ArchiveConfirmed(
        partition=0,
        number=1,
        segment="s",
        digest=b"",
        first_offset=0,
        last_offset=1,
        run_ids=("r",),
    ),  # no digests
]


@pytest.mark.parametrize("event", LATER, ids=lambda e: type(e).__name__)
def test_kinds_whose_behaviour_comes_later_are_refused_never_ignored(event) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    log.start(chain(1))
    log.put(event)
    assert log.outcomes == [Outcome.REFUSED]


def test_control_kinds_are_monotone_by_their_number() -> None:
    log = Log()
    for number, outcome in ((3, Outcome.APPLIED), (3, Outcome.DUPLICATE), (2, Outcome.DUPLICATE)):
        log.put(PolicySet(partition=0, number=number, policy=Policy(steps_max=number)))
        assert log.outcomes == [outcome]
    assert log.partition.policy.steps_max == 3
    log.put(PolicySet(partition=1, number=9, policy=Policy()))
    assert log.outcomes == [Outcome.REFUSED]
    log.put(PolicySet(partition=0, number=9, policy=Policy(start_limit_ms=0)))
    assert log.outcomes == [Outcome.REFUSED]


def test_only_a_fresh_tick_moves_live_time_and_by_three_seconds_at_most() -> None:
    log = Log()
    log.start(chain(1))
    log.tick(1)
    assert log.partition.live_ms == 1_000
    log.now_ms += 500
    log.put(ClockTick(partition=0, number=1))
    assert log.outcomes == [Outcome.DUPLICATE]
    assert log.partition.live_ms == 1_000
    log.now_ms += 60_000
    log.tick(1)
    assert log.partition.live_ms == 4_000


def test_log_time_does_not_go_back() -> None:
    log = Log()
    log.put(ClockTick(partition=0, number=1), at_ms=START_MS + 5_000)
    log.put(ClockTick(partition=0, number=2), at_ms=START_MS + 1_000)
    assert log.partition.log_ms == START_MS + 5_000


def test_unknown_rules_stop_the_partition_and_nothing_is_refused() -> None:
    log = Log()
    with pytest.raises(RulesUnknown):
        log.put(RulesChanged(partition=0, number=1, rules_version=99))
    assert log.partition.position == 0
    log.records.clear()
    log.put(RulesChanged(partition=0, number=1, rules_version=1))
    assert log.partition.rules == 1


def test_a_run_id_that_cannot_be_a_key_is_refused() -> None:
    log = Log()
    log.start(chain(1), run_id="a\0b")
    assert log.outcomes == [Outcome.REFUSED]
    log.began("s0", run_id="x" * 129)
    assert log.outcomes == [Outcome.REFUSED]
    assert list(log.partition.run_ids()) == []


def test_deadlines_fire_in_the_order_of_deadline_and_run_before_the_event() -> None:
    log = Log()
    for run_id, ttl in (("b", 20_000), ("a", 20_000), ("c", 19_000)):
        log.start(chain(1), run_id=run_id, ttl_ms=ttl)
    log.now_ms += 30_000
    out = log.began("s0", run_id="a")
    assert [(t.run_id, t.cause) for t in transitions(out)] == [
        ("c", "timer:ttl"),
        ("a", "timer:ttl"),
        ("b", "timer:ttl"),
        ("a", "StepStarted"),
    ]
    assert log.outcomes == [Outcome.SUPERSEDED]


def test_the_head_of_a_run_is_compact() -> None:
    log = Log()
    log.start(chain(5))
    parts = log.partition.parts()
    assert len(parts[b"rr"]) < 220
    assert RunHead.__struct_config__.array_like
    assert row(log, "s0").epoch == 1


def test_no_timer_of_a_step_moves_a_quarantined_run(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.start(plan_of(step("s0", writes=("f0",)), step("other")))
    log.began("s0")
    log.began("other")
    log.put(StepFailed(run_id="r", step="other", epoch=1, failure_type=FailureType.TRANSIENT))
    break_run(log, monkeypatch)
    before = view(log)
    assert log.tick(120) == []
    assert view(log) == before
