"""A run that is erased leaves the state whole, whatever it was; nothing brings it back."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    dead_letters,
    handoffs,
    pack,
    plan_of,
    step,
    transitions,
    view,
)
from tests.unit.people.asking import asked, failed

from dalsegno.ops.people.packages import Board
from dalsegno.schemas.control import (
    DecisionMade,
    DecisionType,
    ErasedFrom,
    ErasureConfirmed,
    ErasureRequested,
    Policy,
)
from dalsegno.schemas.events import (
    FailureType,
    InformationSupplied,
    RiskFlagged,
    RunCancelled,
    StepFailed,
    StepProgressed,
)
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState
from dalsegno.schemas.plan import OnFailure, RetryPolicy, StepRole
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.ending import kept_ms
from dalsegno.streams.core.partition import PARTITION_KEY, Partition
from dalsegno.streams.core.tombstones import digest_of_id, erased_name

MARK = b"Maria Muster, 1 Main Street"


def erase(log: Log, run_id: str = "r", **fields: object) -> list[Output]:
    event = ErasureRequested(
        run_id=run_id, erasure_id="e1", reason="she asked for it", requested_by="ana"
    )
    return log.put(msgspec.structs.replace(event, **fields))


def assert_gone(log: Log, *marks: bytes) -> None:
    """Nothing of the run is in the state, and its tombstone says so after a restore too."""
    assert list(log.partition.run_ids()) == []
    parts = log.partition.parts()
    kinds = {key[:1] for key in parts if key != PARTITION_KEY}
    assert kinds <= {b"x", b"e"}
    assert kinds >= {b"x"}
    raw = b"".join(key + value for key, value in parts.items())
    for mark in (b"secretly", *marks):
        assert mark not in raw
    assert (log.partition.open_runs, log.partition.in_flight, log.partition.waiting) == (0, 0, 0)
    assert log.partition.next_live_deadline_ms is None
    assert_restores(log)


def was(log: Log) -> str:
    stone = log.partition.erased("r")
    assert stone is not None
    return stone.was


def running(log: Log) -> None:
    log.start(chain(2), context={"name": MARK.decode()}, reply_to="starter secretly")
    log.began("s0", reply_to="worker secretly")
    log.put(StepProgressed(run_id="r", step="s0", epoch=1, progress=1, save=MARK))
    log.put(InformationSupplied(run_id="r", information_id="secretly", ops=pack([]), origin="o"))


def waiting_for_a_person(log: Log) -> None:
    log.start(chain(1), context={"name": MARK.decode()})
    log.began("s0")
    failed(log, "s0", message=MARK.decode())


def being_compensated(log: Log) -> None:
    undo = step("undo", role=StepRole.COMPENSATION)
    plan = plan_of(step("a", compensate="undo"), step("b", needs=("a",)), undo)
    log.start(msgspec.structs.replace(plan, on_failure=OnFailure.COMPENSATE), context={"n": 1})
    log.began("a")
    log.done("a", ops=[])
    log.began("b")
    failed(log, "b")
    assert view(log).state is RunState.COMPENSATING


def ahead_of_its_start(log: Log) -> None:
    log.began("s0", reply_to="worker", source=MARK.decode())


def refused_start(log: Log) -> None:
    log.start(plan_of(step("a", queue="secretly")))


def ended(log: Log) -> None:
    log.start(chain(1), context={"name": MARK.decode()})
    log.began("s0")
    log.done("s0")
    assert view(log).state is RunState.SUCCEEDED


def unknown(log: Log) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "state"),
    [
        (running, "running"), (waiting_for_a_person, "waiting"),
        (being_compensated, "compensating"), (ahead_of_its_start, "not_started"),
        (refused_start, "not_started"), (ended, "succeeded"), (unknown, ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kept", [False, True])
def test_whatever_a_run_is_it_leaves_the_state_whole(before, state: str, kept: bool) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    before(log)
    saved = dict(log.partition.capture()) if kept else {}
    out = erase(log)
    applied = log.outcomes.count(Outcome.APPLIED)
    assert applied == 1, "the request; what waited is refused"
    assert_gone(log, MARK)
    assert was(log) == state
    gone = dict(log.partition.capture())
    assert all(gone.get(key, b"") is None for key in saved if key[:1] in b"rscjvowp")
    (record,) = [each for each in transitions(out) if each.cause == "ErasureRequested"]
    assert (record.run_id, record.actor) == (erased_name("r"), "ana")
    assert MARK not in msgspec.msgpack.encode(transitions(out))


def test_workers_and_the_starter_are_told_without_a_word_of_its_context() -> None:
    log = Log()
    running(log)
    told = {each.reply_to: each for each in answers(erase(log))}
    assert told["worker secretly"].answer is AnswerType.CANCELLED
    assert (told["worker secretly"].step, told["worker secretly"].reason) == ("s0", "erased")
    end = told["starter secretly"]
    assert (end.answer, end.run_state, end.reason) == (
        AnswerType.ENDED, RunState.CANCELLED, "erased",
    )  # fmt: skip
    assert end.context == b""


def test_nothing_late_brings_it_back_and_all_of_it_is_counted() -> None:
    log = Log()
    running(log)
    erase(log)
    for number, late in enumerate(
        (
            lambda: log.done("s0", reply_to="w"),
            lambda: log.start(chain(1), reply_to="w"),
            lambda: log.put(RunCancelled(run_id="r", request_id="c", reply_to="w")),
            lambda: log.began("other", source=MARK.decode(), reply_to="w"),
        ),
        start=1,
    ):
        log.now_ms += 1_000
        out = late()
        assert log.outcomes == [Outcome.REFUSED]
        (said,) = answers(out)
        assert (said.answer, said.reason) == (AnswerType.REFUSED, "erased")
        (record,) = transitions(out)
        assert (record.run_id, record.reason) == (erased_name("r"), "erased")
        assert (record.step, record.actor, handoffs(out), dead_letters(out)) == ("", "", [], [])
        stone = log.partition.erased("r")
        assert stone is not None
        assert (stone.late, stone.last_ms) == (number, log.now_ms), "the promised date moves"
    assert_gone(log, MARK)
    log.tick(200_000)
    log.start(chain(1))
    assert log.outcomes == [Outcome.REFUSED], "for good"


def test_decisions_and_verdicts_come_too_late() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    package = asked(failed(log, "s0"))
    erase(log)
    log.put(
        DecisionMade(
            run_id="r", decision_id="d", escalation_id=package.escalation_id,
            decision=DecisionType.RETRY, decided_by="ana", reason="x",
        )
    )  # fmt: skip
    assert log.outcomes == [Outcome.REFUSED]
    assert "ana" not in str(transitions(log.outputs)[-1:])


def test_the_same_request_again_is_a_duplicate_and_another_changes_nothing() -> None:
    log = Log()
    erase(log)
    first = log.partition.erased("r")
    for fields in ({}, {"erasure_id": "e2", "requested_by": "bob"}):
        erase(log, **fields)
        assert log.outcomes == [Outcome.DUPLICATE]
    stone = log.partition.erased("r")
    assert first is not None
    assert stone is not None
    assert (stone.erasure_id, stone.requested_by) == (first.erasure_id, "ana")


@pytest.mark.parametrize(
    "fields", [{"erasure_id": ""}, {"requested_by": ""}, {"reason": ""}, {"reason": "x" * 513}]
)
def test_a_request_that_says_too_little_or_too_much_is_refused(fields: dict[str, str]) -> None:
    log = Log()
    log.start(chain(1))
    erase(log, **fields)
    assert log.outcomes == [Outcome.REFUSED]
    assert view(log).state is RunState.RUNNING


def test_open_packages_about_it_are_closed() -> None:
    log = Log()
    log.start(chain(1))
    log.began("s0")
    package = asked(failed(log, "s0"))
    board = Board()
    board.package(package)
    assert board.open(log.now_ms) == [package]
    for transition in transitions(erase(log)):
        board.transition(transition)
    assert board.open(log.now_ms) == []


def test_a_quarantined_run_goes_with_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    log = Log()
    log.start(chain(1), context={"name": MARK.decode()})
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.lifecycle.raise_flags", raising)
        log.put(RiskFlagged(run_id="r", flag_id="1", flag="odd"))
    log.began("s0", reply_to="w", source=MARK.decode())
    assert log.partition.waiting == 1
    out = erase(log)
    assert sorted(log.outcomes) == sorted([Outcome.APPLIED, Outcome.REFUSED])
    assert [each.reason for each in answers(out) if each.reply_to == "w"] == ["erased"]
    assert_gone(log, MARK)


def test_what_raises_costs_the_request_and_leaves_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    log = Log()
    running(log)
    before = log.partition.run("r")
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.erasing.stop_attempts", raising)
        out = erase(log)
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    assert answers(out) == []
    assert log.partition.run("r") == before
    assert log.partition.erased("r") is None


def test_its_steps_make_room_for_those_of_others() -> None:
    log = Log()
    log.policy(recovery_width_max=1)
    for name in ("r", "other"):
        log.start(plan_of(step("a", retry=RetryPolicy(initial_ms=0, max_ms=0))), run_id=name)
        log.began("a", run_id=name)
    for name in ("r", "other"):
        log.put(StepFailed(run_id=name, step="a", epoch=1, failure_type=FailureType.TRANSIENT))
    log.tick(5)
    before = [(h.run_id, h.epoch) for h in handoffs(log.outputs) if h.epoch == 2]
    assert before == [("r", 2)], "one further attempt at a time"
    given = handoffs(erase(log)) + handoffs(log.tick(5))
    assert [(h.run_id, h.epoch) for h in given] == [("other", 2)]


def test_the_owner_says_what_has_left_the_stores() -> None:
    log = Log()
    erase(log)
    stores = (ErasedFrom(store="archive", removed=3, detail="records"),)
    confirmed = ErasureConfirmed(
        partition=0, number=1, run_digest=digest_of_id("r"), stores=stores, gone_by_ms=5
    )
    for event, outcome in (
        (confirmed, Outcome.APPLIED),
        (confirmed, Outcome.DUPLICATE),
        (msgspec.structs.replace(confirmed, number=0), Outcome.DUPLICATE),
        (msgspec.structs.replace(confirmed, run_digest=digest_of_id("s")), Outcome.REFUSED),
        (msgspec.structs.replace(confirmed, partition=7, number=2), Outcome.REFUSED),
    ):
        log.put(event)
        assert log.outcomes == [outcome]
    stone = log.partition.erased("r")
    assert stone is not None
    assert (stone.confirmed, stone.gone_by_ms, stone.number) == (stores, 5, 1)
    assert_gone(log)


def test_tombstones_outlive_captures_and_restores() -> None:
    log = Log()
    saved: dict[bytes, bytes | None] = {}
    for name in ("a", "b", "c"):
        log.start(chain(1), run_id=name)
        saved.update(log.partition.capture())
        erase(log, name)
        saved.update(log.partition.capture())
        log.done("s0", run_id=name)
    saved.update(log.partition.capture())
    parts = {key: value for key, value in saved.items() if value is not None}
    assert parts == log.partition.parts()
    again = Partition.restore(0, parts.items())
    assert again.erasures == log.partition.erasures
    assert again.erased("b") == log.partition.erased("b")


def test_each_final_state_is_kept_as_long_as_the_policy_says() -> None:
    policy = Policy(stub_keep_ms=7, keep_failed_ms=3, keep_expired_ms=9)
    kept = {state: kept_ms(policy, state) for state in list(RunState)[-5:]}
    assert kept == {
        RunState.SUCCEEDED: 7, RunState.FAILED: 3, RunState.COMPENSATED: 7,
        RunState.CANCELLED: 7, RunState.EXPIRED: 9,
    }  # fmt: skip
    log = Log()
    log.policy(stub_keep_ms=60_000, keep_succeeded_ms=2_000)
    for name in ("short", "long"):
        log.start(chain(1), run_id=name)
    log.began("s0", run_id="short")
    log.done("s0", run_id="short")
    log.put(RunCancelled(run_id="long", request_id="c"))
    log.tick(3)
    assert list(log.partition.run_ids()) == ["long"]
