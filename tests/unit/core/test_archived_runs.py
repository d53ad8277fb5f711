"""Runs whose state is in the archive: what leaves, what wakes them, and that exactly it returns."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    dead_letters,
    escalations,
    handoffs,
    pack,
    step,
    transitions,
    view,
)
from tests.unit.core.shelf import Shelf, archived, waiting_for_a_person
from tests.unit.people.asking import decision

from dalsegno.schemas.control import ClockTick, StallSuspected, Verdict
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    InformationSupplied,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunPaused,
    RunResumed,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepReleased,
    StepStarted,
)
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState
from dalsegno.streams.core.archived import Idle
from dalsegno.streams.core.capturing import parts_of
from dalsegno.streams.core.cold import digest_of_parts, pack_parts
from dalsegno.streams.core.partition import Partition

R = {"run_id": "r"}
A = {"run_id": "r", "step": "s0", "epoch": 1}
EVENTS = [
    PlanExtended(**R, extension_id="x", steps=(step("more"),), last=True),
    StepStarted(**A, worker="late", incarnation=1),
    StepProgressed(**A, progress=3),
    StepCompleted(**A, ops=pack([["set", ["f0"], "late"]])),
    StepFailed(**A, failure_type=FailureType.TRANSIENT),
    StepReleased(**A),
    EffectIntended(**A, effect="card", occurrence=0, key="no such key"),
    EffectConfirmed(**A, effect="card", occurrence=0, result=b"\xc0"),
    InformationSupplied(**R, information_id="i", ops=pack([["set", ["x"], 1]]), origin="person"),
    RiskFlagged(**R, flag_id="f", flag="vip"),
    RunPaused(**R, request_id="p"),
    RunResumed(**R, request_id="q"),
    RunCancelled(**R, request_id="c", reply_to="me"),
    StallSuspected(**A, verdict=Verdict.LOST, events_offset=3, heartbeats_at_ms=0),
]


def of_runs(log: Log) -> dict[bytes, bytes]:
    """The parts of all runs."""
    return {key: part for key, part in log.partition.parts().items() if key[:1] in b"rscjvow"}


def said(out: list, *, but: str = "RunRestored") -> list[object]:  # type: ignore[type-arg]
    """What came of it, without where in the log it stands."""
    found: list[object] = [
        msgspec.structs.replace(each, cause_offset=0)
        for each in transitions(out)
        if each.cause != but
    ]
    return found + answers(out) + handoffs(out)


def test_a_run_leaves_a_stub_that_says_what_it_was() -> None:
    shelf = Shelf()
    log, package = waiting_for_a_person()
    before = view(log)
    log.partition.capture()
    size = sum(map(len, log.partition.parts().values()))
    log.put(shelf.choose(log.partition))  # type: ignore[arg-type]
    stub = view(log)
    assert (stub.kind, stub.state) == ("archived", RunState.WAITING)
    for name in ("flow", "flow_version", "run_version", "expires_ms", "questions", "plan_digest"):
        assert getattr(stub, name) == getattr(before, name)
    assert stub.questions[0].escalation_id == package.escalation_id
    assert stub.archived is not None
    assert stub.archived.wanted_ms == 0
    changed = dict(log.partition.capture())
    assert [key for key, value in changed.items() if value is None] != []
    kept = {key for key, value in changed.items() if value is not None}
    assert {key for key in log.partition.parts() if key[:1] in b"rscjvow"} == kept - {
        b"\0partition"
    }
    assert sum(map(len, log.partition.parts().values())) < size - 300
    assert (log.partition.open_runs, log.partition.archived.count) == (1, 1)
    assert log.partition.next_log_deadline_ms is not None
    assert_restores(log)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_of_any_kind_wakes_it_and_is_applied_to_exactly_what_it_was(event) -> None:  # type: ignore[no-untyped-def]
    shelf = Shelf()
    log, _ = archived(shelf)
    stayed = Log()
    for record in log.records[:-1]:
        stayed.put(record.event, at_ms=record.at_ms)  # type: ignore[arg-type]
    stayed.put(ClockTick(partition=0, number=1))  # in place of the archive's event
    out = log.put(event)
    assert (out, log.outcomes, log.partition.waiting) == ([], [], 1)
    stub = view(log)
    assert stub.archived is not None
    assert (stub.archived.wanted_by, stub.events_waiting) == (type(event).__name__, 1)
    assert [run_id for run_id, _ in log.partition.archived.wanted()] == ["r"]
    assert_restores(log)
    log.partition = Partition.restore(0, log.partition.parts().items())
    back = log.put(shelf.bring(log.partition, "r"))
    expected = stayed.put(event)
    assert said(back) == said(expected)
    assert sorted(log.outcomes) == sorted([Outcome.APPLIED, *stayed.outcomes])
    if not handoffs(back):  # those say where in the log they stand
        assert of_runs(log) == of_runs(stayed)
    assert (log.partition.archived.count, log.partition.archived.wanted()) == (0, [])
    assert_restores(log)


def test_a_persons_decision_wakes_it() -> None:
    shelf = Shelf()
    log, package = archived(shelf)
    assert log.put(decision(package, "retry")) == []
    out = log.put(shelf.bring(log.partition, "r"))
    assert [h.epoch for h in handoffs(out)] == [2]
    assert [t.cause for t in transitions(out)] == ["RunRestored", "DecisionMade"]
    assert_restores(log)


def test_a_repeated_start_is_answered_and_does_not_wake_it() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    out = log.start(chain(2), context={"in": "x" * 400}, reply_to="me")
    assert log.outcomes == [Outcome.DUPLICATE]
    assert [a.run_state for a in answers(out)] == [RunState.WAITING]
    log.start(chain(1))
    assert log.outcomes == [Outcome.REFUSED]
    assert log.partition.archived.wanted() == []


def test_a_deadline_wakes_it_and_fires_once_it_is_back() -> None:
    shelf = Shelf()
    log, package = archived(shelf)
    due = log.partition.next_log_deadline_ms
    assert due is not None
    log.now_ms = due
    assert log.tick(1) == []
    assert [head.wanted_by for _, head in log.partition.archived.wanted()] == ["timer"]
    assert log.partition.next_log_deadline_ms is None, "there is nothing to tick for"
    assert log.tick(3) == []
    log.partition = Partition.restore(0, log.partition.parts().items())
    out = log.put(shelf.bring(log.partition, "r"))
    (reminder,) = escalations(out)
    assert (reminder.escalation_id, reminder.reminder) == (package.escalation_id, 1)


def test_what_came_in_time_is_applied_before_a_deadline_that_passed_meanwhile() -> None:
    shelf = Shelf()
    log, package = archived(shelf, ttl_ms=600_000)
    log.put(decision(package, "retry"))
    log.now_ms += 3_000_000
    log.tick(1)
    out = log.put(shelf.bring(log.partition, "r"))
    causes = [t.cause for t in transitions(out)]
    assert causes[:2] == ["RunRestored", "DecisionMade"]
    assert log.outcomes == [Outcome.APPLIED, Outcome.APPLIED]


def test_a_deadline_that_passed_first_fires_before_what_came_later() -> None:
    shelf = Shelf()
    log, package = archived(shelf)
    log.now_ms = package.answer_by_ms
    log.tick(1)
    log.put(decision(package, "retry"))
    out = log.put(shelf.bring(log.partition, "r"))
    causes = [t.cause for t in transitions(out)]
    assert causes[0] == "RunRestored"
    assert causes[-1] == "DecisionMade"
    assert all(cause.startswith("timer:") for cause in causes[1:-1])
    assert len(causes) == 3
    assert log.outcomes == [Outcome.APPLIED, Outcome.REFUSED]


def test_a_run_that_moved_after_it_was_chosen_stays() -> None:
    shelf = Shelf()
    log, _ = waiting_for_a_person()
    event = shelf.choose(log.partition)
    assert event is not None
    log.put(RiskFlagged(run_id="r", flag_id="f", flag="vip"))
    log.put(event)
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).kind == "run"
    assert log.partition.archived.stayed == 1


def test_even_a_refused_request_that_is_remembered_keeps_it() -> None:
    shelf = Shelf()
    log, package = waiting_for_a_person()
    event = shelf.choose(log.partition)
    assert event is not None
    log.put(decision(package, "retry", package_digest=b"another"))
    assert log.outcomes == [Outcome.REFUSED]
    log.put(event)
    assert view(log).kind == "run"


def test_a_run_with_something_in_flight_is_not_chosen_and_not_let_go() -> None:
    shelf = Shelf()
    log, _ = waiting_for_a_person()
    event = shelf.choose(log.partition)
    assert event is not None
    moving = Log()
    moving.start(chain(2))
    assert Shelf().choose(moving.partition) is None
    held = moving.partition._runs.get("r")
    assert held is not None
    digest = digest_of_parts(pack_parts(parts_of("r", held)), 1)
    moving.put(msgspec.structs.replace(event, run_digests=(digest,)))
    assert view(moving).kind == "run"


def test_more_than_may_wait_is_a_dead_letter_and_nothing_is_lost() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    log.policy(early_events_max=2)
    for number in range(3):
        log.put(RiskFlagged(run_id="r", flag_id=f"f{number}", flag="vip"))
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    (letter,) = dead_letters(log.outputs[-1:])
    assert letter.letter.reason == "archived"
    log.policy(early_events_max=0)
    out = log.put(shelf.bring(log.partition, "r"))
    assert [t.cause for t in transitions(out)] == ["RunRestored", "RiskFlagged", "RiskFlagged"]


@pytest.mark.parametrize("bound", [{"early_events_max": 0}, {"early_bytes_max": 0}])
def test_even_where_nothing_may_come_early_an_event_wakes_it_and_is_applied(
    bound: dict[str, int],
) -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    log.policy(**bound)
    log.put(RunPaused(run_id="r", request_id="p"))
    log.put(RunResumed(run_id="r", request_id="q"))
    assert log.outcomes == []
    assert (log.partition.waiting, len(log.partition.archived.wanted())) == (2, 1)
    out = log.put(shelf.bring(log.partition, "r"))
    assert [t.cause for t in transitions(out)] == ["RunRestored", "RunPaused", "RunResumed"]
    log.put(RunPaused(run_id="nobody", request_id="p"))
    assert log.outcomes == [Outcome.DEAD_LETTERED]


def test_even_where_nothing_may_come_early_what_waits_for_it_is_bounded() -> None:
    log, _ = archived(Shelf())
    log.policy(early_events_max=0)
    for number in range(65):
        log.put(RiskFlagged(run_id="r", flag_id=f"f{number}", flag="vip"))
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    assert log.partition.waiting == 64


def test_the_event_that_wakes_it_waits_whatever_its_size() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    log.policy(early_bytes_max=100)
    log.put(RunPaused(run_id="r", request_id="p"), value=bytes(101))
    log.put(RunResumed(run_id="r", request_id="q"), value=bytes(1))
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    log.put(shelf.bring(log.partition, "r"))
    assert view(log).state is RunState.PAUSED


def test_only_exactly_what_left_comes_back() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    right = shelf.bring(log.partition, "r")
    flipped = bytearray(right.parts)
    flipped[len(flipped) // 2] ^= 1
    other, _ = waiting_for_a_person(ttl_ms=999_999_999)
    foreign = shelf.choose(other.partition)
    assert foreign is not None
    for wrong, reason in (
        (msgspec.structs.replace(right, parts=bytes(flipped)), "damaged_parts"),
        (msgspec.structs.replace(right, parts=b""), "damaged_parts"),
        (msgspec.structs.replace(right, restore_id=""), "bad_id"),
        (shelf.event(foreign.segment, "r"), "other_parts"),
        (shelf.event(foreign.segment, "r", absent=True), "other_parts"),
    ):
        (transition,) = transitions(log.put(wrong))
        assert (transition.outcome, transition.reason) == (Outcome.REFUSED, reason)
        assert view(log).kind == "archived"
        assert_restores(log)
    log.put(right)
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).kind == "run"
    assert log.put(right) == []
    assert log.outcomes == [Outcome.DUPLICATE]


def test_a_restore_of_a_run_that_has_ended_or_is_unknown_makes_no_second_life() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    right = shelf.bring(log.partition, "r")
    log.put(right)
    log.put(RunCancelled(run_id="r", request_id="c"))
    log.put(RunResumed(run_id="r", request_id="q"))
    assert log.put(right) == []
    assert log.outcomes == [Outcome.DUPLICATE]
    absent = shelf.event(right.restore_id, "r", absent=True)
    assert log.put(absent) == []
    assert log.outcomes == [Outcome.DUPLICATE]
    log.put(msgspec.structs.replace(right, run_id="nobody"))
    assert log.outcomes == [Outcome.REFUSED]
    assert view(log).state is RunState.CANCELLED


def test_it_leaves_and_comes_back_within_one_checkpoint_and_over_several() -> None:
    shelf = Shelf()
    log, _ = waiting_for_a_person()
    saved = dict(log.partition.capture())
    whole = of_runs(log)
    for capture in (False, True, False):
        log.put(shelf.choose(log.partition))  # type: ignore[arg-type]
        if capture:
            saved.update(log.partition.capture())
        log.put(shelf.bring(log.partition, "r"))
        saved.update(log.partition.capture())
        parts = {key: value for key, value in saved.items() if value is not None}
        assert parts == log.partition.parts()
        assert of_runs(log) == whole


def test_a_second_segment_of_the_same_run_changes_nothing() -> None:
    shelf = Shelf()
    log, _ = waiting_for_a_person()
    first, second = shelf.choose(log.partition), shelf.choose(log.partition)
    assert first is not None
    assert second is not None
    log.put(first)
    stub = view(log)
    log.put(msgspec.structs.replace(second, number=second.number + 1))
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log) == stub


def test_what_is_no_segment_of_runs_is_refused() -> None:
    log, _ = waiting_for_a_person()
    right = Shelf().choose(log.partition)
    assert right is not None
    for wrong in (
        {"run_digests": ()},
        {"run_digests": (b"short",)},
        {"run_ids": ("r", "r"), "run_digests": right.run_digests * 2},
        {"run_ids": ()},
        {"segment": ""},
        {"segment": "s" * 257},
    ):
        log.put(msgspec.structs.replace(right, **wrong))
        assert log.outcomes == [Outcome.REFUSED]
    assert view(log).kind == "run"
    assert log.partition.archived_to == 0


def test_a_run_that_just_came_back_is_not_chosen_again_at_once() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    log.now_ms += 100_000
    log.tick(1)
    log.put(shelf.bring(log.partition, "r"))
    idle = Idle(since_ms=log.now_ms - 50_000, due_ms=0)
    assert log.partition.archived.split(["r"], idle) == ([], [])
    later = Idle(since_ms=log.now_ms + 1, due_ms=0)
    assert [each.run_id for each in log.partition.archived.split(["r"], later)[0]] == ["r"]


def test_a_cancelled_run_of_the_archive_answers_who_cancelled_it() -> None:
    shelf = Shelf()
    log, _ = archived(shelf)
    log.put(RunCancelled(run_id="r", request_id="c", reply_to="me"))
    out = log.put(shelf.bring(log.partition, "r"))
    assert AnswerType.ACCEPTED in [a.answer for a in answers(out)]
