"""Start, pause, resume, cancel, expiry, extension, flags."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    escalations,
    handoffs,
    pack,
    plan_of,
    row,
    step,
    transitions,
    view,
)

from dalsegno.schemas.events import (
    EffectConfirmed,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunPaused,
    RunResumed,
    StepStarted,
)
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState, StepState
from dalsegno.schemas.plan import Risk


def test_the_same_start_is_a_duplicate_and_another_one_is_refused() -> None:
    log = Log()
    log.start(chain(1))
    out = log.start(chain(1), reply_to="again", source="someone else")
    assert log.outcomes == [Outcome.DUPLICATE]
    assert answers(out)[0].answer is AnswerType.DUPLICATE
    out = log.start(chain(2), reply_to="again")
    assert log.outcomes == [Outcome.REFUSED]
    assert answers(out)[0].reason == "different_start"
    assert view(log).steps_left == 1
    log.began("s0")
    log.done("s0")
    out = log.start(chain(1), reply_to="again")
    assert log.outcomes == [Outcome.DUPLICATE]
    assert answers(out)[0].run_state is RunState.SUCCEEDED
    assert msgspec.msgpack.decode(answers(out)[0].context) == {"f0": "s0"}
    log.start(chain(2))
    assert log.outcomes == [Outcome.REFUSED]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (plan_of(step("a", needs=("b",)), step("b", needs=("a",))), "cycle"),
        (plan_of(step("a", queue="nowhere")), "unknown_queue"),
        (plan_of(step("a", risk=Risk.MONEY)), "risky_step"),
        (plan_of(step("a", timeout_ms=90_000_000)), "ttl_too_short"),
    ],
)
def test_a_refused_start_leaves_a_stub_that_says_why_until_a_valid_start(plan, reason) -> None:  # type: ignore[no-untyped-def]
    log = Log()
    out = log.start(plan, reply_to="me")
    assert log.outcomes == [Outcome.REFUSED]
    assert (answers(out)[0].answer, answers(out)[0].reason) == (AnswerType.REFUSED, reason)
    assert (view(log).kind, view(log).reason) == ("refused", reason)
    assert_restores(log)
    log.began("a")
    assert log.outcomes == [Outcome.REFUSED]
    log.start(chain(1))
    assert log.outcomes == [Outcome.APPLIED]
    assert view(log).kind == "run"
    assert_restores(log)


def test_stubs_go_after_their_time() -> None:
    log = Log()
    log.policy(stub_keep_ms=5_000)
    log.start(plan_of(step("a", queue="nowhere")), run_id="refused")
    log.start(chain(1), run_id="ended")
    log.began("s0", run_id="ended")
    log.done("s0", run_id="ended")
    captured = dict(log.partition.capture())
    log.tick(4)
    assert log.partition.run("ended") is not None
    log.tick(1)
    assert list(log.partition.run_ids()) == []
    gone = dict(log.partition.capture())
    assert all(gone.get(key, b"") is None for key in captured if key[:1] in b"rp")
    assert {key for key in log.partition.parts() if key[:1] != b"e"} == {b"\0partition"}


def test_pause_holds_back_and_resume_lets_go_in_the_order_of_the_plan() -> None:
    log = Log()
    log.start(plan_of(step("a"), step("b", needs=("a",)), step("c", needs=("a",))))
    log.began("a")
    pause = RunPaused(run_id="r", request_id="p", reply_to="me")
    first = log.put(pause)
    assert view(log).state is RunState.PAUSED
    assert answers(log.put(pause)) == answers(first)
    assert log.outcomes == [Outcome.DUPLICATE]
    assert handoffs(log.done("a", ops=[])) == []
    assert_restores(log)
    log.put(RunPaused(run_id="r", request_id="p2"))
    assert log.outcomes == [Outcome.REFUSED]
    out = log.put(RunResumed(run_id="r", request_id="q"))
    assert [h.step for h in handoffs(out)] == ["b", "c"]
    assert view(log).state is RunState.RUNNING
    log.put(RunResumed(run_id="r", request_id="q2"))
    assert log.outcomes == [Outcome.REFUSED]


def test_a_paused_run_resumes_after_a_restore_too() -> None:
    from dalsegno.streams.core.partition import Partition

    log = Log()
    log.start(plan_of(step("a"), step("b", needs=("a",))))
    log.began("a")
    log.put(RunPaused(run_id="r", request_id="p"))
    log.done("a", ops=[])
    log.partition = Partition.restore(0, log.partition.parts().items())
    out = log.put(RunResumed(run_id="r", request_id="q"))
    assert [h.step for h in handoffs(out)] == ["b"]


def test_cancel_ends_the_run_and_tells_the_workers() -> None:
    log = Log()
    log.start(plan_of(step("a"), step("b"), step("c", needs=("a", "b"))), reply_to="me")
    log.began("a", reply_to="w")
    cancel = RunCancelled(run_id="r", request_id="c", reason="wrong customer", reply_to="boss")
    out = log.put(cancel)
    told = {a.reply_to: a.answer for a in answers(out)}
    assert told == {"boss": AnswerType.ACCEPTED, "w": AnswerType.CANCELLED, "me": AnswerType.ENDED}
    assert view(log).state is RunState.CANCELLED
    out = log.done("a", ops=[], reply_to="w")
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert answers(out)[0].answer is AnswerType.CANCELLED
    out = log.put(cancel)
    assert log.outcomes == [Outcome.DUPLICATE]
    assert answers(out)[0].answer is AnswerType.ACCEPTED
    assert not log.partition.needs_tick
    assert handoffs(log.tick(120)) == [], "nothing of a cancelled run comes back"


def test_cancel_works_for_a_run_at_its_size_limit_and_writes_a_header() -> None:
    log = Log()
    log.policy(context_bytes_max=2_000)
    log.start(chain(200), context={"x": "y" * 1_900}, ttl_ms=86_400_000)
    log.began("s0")
    log.done("s0", ops=[["set", ["f0"], "z" * 500]])
    assert row(log, "s0").state is StepState.ESCALATED
    log.partition.capture()
    log.put(RunCancelled(run_id="r", request_id="c"))
    assert view(log).state is RunState.CANCELLED
    written = [value for _, value in log.partition.capture() if value]
    assert sum(map(len, written)) < 4_500


def test_a_run_expires_on_log_time() -> None:
    log = Log()
    log.start(chain(1), reply_to="me", ttl_ms=20_000)
    log.began("s0", reply_to="w")
    log.now_ms += 25_000
    out = log.tick(1)
    assert view(log).state is RunState.EXPIRED
    assert [(a.reply_to, a.answer) for a in answers(out)] == [
        ("w", AnswerType.CANCELLED),
        ("me", AnswerType.ENDED),
    ]


def test_clocks_stop_for_people_where_the_plan_says_so() -> None:
    log = Log()
    log.start(plan_of(step("a", reads=("x",)), stop_clocks_for_people=True), ttl_ms=100_000)
    log.tick(300)
    assert view(log).state is RunState.WAITING
    from dalsegno.schemas.events import InformationSupplied

    log.put(
        InformationSupplied(
            run_id="r", information_id="i", ops=pack([["set", ["x"], 1]]), origin="desk"
        )
    )
    assert view(log).expires_ms == log.now_ms + 100_000
    log.tick(101)
    assert view(log).state is RunState.EXPIRED


def test_a_plan_in_parts_starts_with_its_last_part() -> None:
    log = Log()
    out = log.start(plan_of(step("a")), more=True)
    assert handoffs(out) == []
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "plan")
    digest = bytes.fromhex(view(log).plan_digest)
    part = PlanExtended(
        run_id="r",
        extension_id="1",
        steps=(step("b", needs=("a",)),),
        last=False,
        expected_plan_digest=digest,
        reply_to="me",
    )
    first = log.put(part)
    assert handoffs(first) == []
    assert answers(log.put(part)) == answers(first)
    assert log.outcomes == [Outcome.DUPLICATE]
    stale = msgspec.structs.replace(part, extension_id="2", steps=(step("c"),))
    assert answers(log.put(stale))[0].reason == "plan_conflict"
    fresh = msgspec.structs.replace(stale, extension_id="3", expected_plan_digest=b"")
    out = log.put(msgspec.structs.replace(fresh, last=True))
    assert [h.step for h in handoffs(out)] == ["a", "c"]
    assert_restores(log)


def test_steps_can_be_added_behind_steps_that_are_done() -> None:
    log = Log()
    log.start(plan_of(step("a"), step("b", needs=("a",))))
    log.began("a")
    log.done("a", ops=[])
    out = log.put(
        PlanExtended(
            run_id="r",
            extension_id="1",
            steps=(step("c", needs=("a",)), step("d", needs=("b", "c"))),
        )
    )
    assert [h.step for h in handoffs(out)] == ["c"]
    for name in ("b", "c", "d"):
        log.began(name)
        log.done(name, ops=[])
    assert view(log).state is RunState.SUCCEEDED


def test_an_extension_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    log = Log()
    log.start(plan_of(step("a")))
    before = log.partition.parts()
    for number, steps in enumerate(((step("a"),), (step("b", needs=("nothing",)),), ())):
        log.put(PlanExtended(run_id="r", extension_id=str(number), steps=steps))
        assert log.outcomes == [Outcome.REFUSED]
    after = log.partition.parts()
    # Only the partition's counts and the answers that were given are new.
    assert {k: v for k, v in after.items() if k != b"\0partition" and k[:1] != b"o"} == {
        k: v for k, v in before.items() if k != b"\0partition"
    }


def test_a_gated_flag_stops_further_steps() -> None:
    log = Log()
    log.start(plan_of(step("a"), step("b", needs=("a",)), gates=("fraud",)))
    log.began("a")
    out = log.put(RiskFlagged(run_id="r", flag_id="1", flag="fraud", reply_to="me"))
    assert [e.asked for e in escalations(out)] == ["approval"]
    assert answers(out)[0].answer is AnswerType.ACCEPTED
    assert handoffs(log.done("a", ops=[])) == []
    assert (view(log).state, view(log).waiting_for) == (RunState.WAITING, "person")
    assert view(log).flags == ("fraud",)
    log.put(RiskFlagged(run_id="r", flag_id="1", flag="fraud"))
    assert log.outcomes == [Outcome.DUPLICATE]


def test_a_flag_of_a_steps_report_gates_what_follows() -> None:
    log = Log()
    log.start(plan_of(step("a"), step("b", needs=("a",)), gates=("fraud",)))
    log.began("a")
    out = log.done("a", ops=[], risk_flags=("harmless", "fraud"))
    assert handoffs(out) == []
    assert row(log, "b").state is StepState.READY


def test_a_run_that_starts_with_a_gated_flag_starts_nothing() -> None:
    log = Log()
    out = log.start(plan_of(step("a"), gates=("fraud",)), risk_flags=("fraud",))
    assert handoffs(out) == []
    assert escalations(out)[0].reason == "flag:fraud"


def test_one_shot_ids_are_remembered_up_to_a_bound() -> None:
    from dalsegno.streams.core.runs import IDS_MAX

    log = Log()
    log.start(chain(1))
    for number in range(IDS_MAX + 40):
        log.put(RiskFlagged(run_id="r", flag_id=str(number), flag="f"))
        log.partition.capture()
    log.put(RiskFlagged(run_id="r", flag_id=str(IDS_MAX + 39), flag="f"))
    assert log.outcomes == [Outcome.DUPLICATE]
    pages = [key for key in log.partition.parts() if key[:1] == b"o"]
    assert len(pages) <= IDS_MAX // 32 + 1
    assert_restores(log)


def test_versions_never_go_back_and_final_states_stay() -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0")
    log.done("s0")
    log.began("s1")
    log.done("s1")
    log.done("s1")
    assert log.outcomes == [Outcome.DUPLICATE]
    log.done("s0")
    log.put(RunPaused(run_id="r", request_id="p"))
    log.put(StepStarted(run_id="r", step="s1", epoch=1))
    log.put(EffectConfirmed(run_id="r", step="s1", epoch=1, effect="e", occurrence=0, result=b""))
    versions = [(t.run_version_before, t.run_version_after) for t in transitions(log.outputs)]
    assert all(a[1] == b[0] for a, b in pairwise(versions))
    assert view(log).state is RunState.SUCCEEDED


def test_a_run_that_comes_back_with_another_plan_between_two_drains() -> None:
    log = Log()
    log.policy(stub_keep_ms=2_000)
    log.start(chain(2))
    log.began("s0")
    log.put(RunCancelled(run_id="r", request_id="c"))
    log.tick(5)
    log.start(plan_of(step("other")))
    drained = dict(log.partition.drain_in_flight())
    assert drained["r", "s0"] is None
    assert drained["r", "other"] is not None
