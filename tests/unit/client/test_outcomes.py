"""What a client tells about its runs, by the answers that it got."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from dalsegno.client import Client, Flow, ReportRefused, RunRefused, RunState, WaitTimeout
from dalsegno.schemas import codec, values
from dalsegno.schemas.events import PlanExtended, RunStarted
from dalsegno.schemas.outputs import Answer, AnswerType
from dalsegno.streams.client.outcomes import Outcomes
from dalsegno.streams.client.plan_parts import in_parts


def answer(says: AnswerType, **fields: object) -> Answer:
    given = {"reply_to": "c", "run_id": "r", "kind": "RunStarted", **fields}
    return Answer(answer=says, **given)  # type: ignore[arg-type]


def ended(state: RunState = RunState.SUCCEEDED) -> Answer:
    return answer(
        AnswerType.ENDED, run_state=state, run_version=4, context=values.pack({"score": 5})
    )


def begun() -> Outcomes:
    """Of a client that has started `r`."""
    outcomes = Outcomes(10)
    outcomes.begin("r")
    return outcomes


def test_the_end_of_a_run_comes_with_its_context_even_before_it_is_asked_for() -> None:
    outcomes = begun()
    outcomes.tell(answer(AnswerType.ACCEPTED))
    outcomes.tell(ended())
    result = outcomes.wait_own("r", 0)
    assert result is not None
    assert result.succeeded
    assert (result.state, result.run_version, result.context) == (
        RunState.SUCCEEDED,
        4,
        {"score": 5},
    )


def test_a_waiter_is_woken() -> None:
    outcomes = begun()
    threading.Timer(0.02, outcomes.tell, [ended(RunState.CANCELLED)]).start()
    result = outcomes.wait_own("r", 60)
    assert result is not None
    assert result.state is RunState.CANCELLED


def test_an_attempt_that_followed_another_of_this_client_is_told_when_it_is_overtaken() -> None:
    outcomes = Outcomes(10)
    outcomes.check_report("r", "s", 1)
    outcomes.reported("r", "s", 1, 5)
    outcomes.check_report("r", "s", 2)
    outcomes.tell(superseded("newer_attempt"), 10)  # by the second one itself: its first report
    outcomes.check_report("r", "s", 2)
    outcomes.reported("r", "s", 2, 10)
    outcomes.check_report("r", "s", 2)
    outcomes.tell(superseded("newer_attempt"), 15)  # by somebody else
    with pytest.raises(ReportRefused, match="newer_attempt"):
        outcomes.check_report("r", "s", 2)
    outcomes.check_report("r", "s", 2)  # once


def test_a_start_in_parts_is_taken_once_every_part_is() -> None:
    outcomes = Outcomes(10)
    outcomes.begin("r", parts=3)
    outcomes.tell(answer(AnswerType.ACCEPTED), 5)
    for offset in (6, 6):  # an answer may come twice
        outcomes.tell(answer(AnswerType.ACCEPTED, kind="PlanExtended"), offset)
        with pytest.raises(WaitTimeout):
            outcomes.wait_started("r", 0)
    outcomes.tell(answer(AnswerType.ACCEPTED, kind="PlanExtended"), 7)
    outcomes.wait_started("r", 0)


def test_the_time_of_a_start_is_for_the_whole_call(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[float, float]] = []
    now_s = iter((100.0, 104.0, 200.0, 299.0))
    client = Client(bootstrap_servers="127.0.0.1:1")
    monkeypatch.setattr(Client, "start_many", lambda *_, **__: ["r"])
    monkeypatch.setattr(client._outcomes, "wait_started", lambda _, *s: waits.append(s))
    monkeypatch.setattr(
        "dalsegno.streams.client.client.time", SimpleNamespace(monotonic=lambda: next(now_s))
    )
    for _ in range(2):
        client.start(Flow("f"), {}, run_id="r", timeout="10s")
    assert waits == [(6.0, 10.0), (0.0, 10.0)]
    client.close()


def test_a_refused_start_is_an_error_that_says_why() -> None:
    outcomes = begun()
    outcomes.tell(answer(AnswerType.REFUSED, reason="cycle", detail="a > b > a"))
    with pytest.raises(RunRefused, match="cycle: a > b > a"):
        outcomes.wait_own("r", 0)
    outcomes.begin("r")  # a corrected start under the same id
    outcomes.tell(ended())
    result = outcomes.told("r")
    assert result is not None
    assert result.succeeded


def test_a_start_is_taken_refused_or_not_answered() -> None:
    outcomes = Outcomes(10)
    with pytest.raises(WaitTimeout, match="no answer to its start"):
        outcomes.wait_started("r", 0)
    for taken in (answer(AnswerType.ACCEPTED), answer(AnswerType.DUPLICATE), ended()):
        outcomes.begin("r")
        outcomes.tell(taken)
        outcomes.wait_started("r", 0)
    outcomes.begin("r")
    outcomes.tell(answer(AnswerType.REFUSED, reason="different_start"))
    with pytest.raises(RunRefused, match="different_start"):
        outcomes.wait_started("r", 0)


def test_no_answer_in_time_is_a_timeout() -> None:
    with pytest.raises(WaitTimeout, match="no answer to its start within 10 s"):
        begun().wait_started("r", 0, 10)
    with pytest.raises(WaitTimeout, match="not ended within 0 s"):
        begun().wait_own("r", 0)


def test_a_start_that_is_sent_again_hears_that_its_run_has_ended() -> None:
    outcomes = begun()
    outcomes.tell(answer(AnswerType.DUPLICATE, run_state=RunState.RUNNING))
    assert outcomes.wait_own("r", 0) is None, "its end is told to whoever began it"
    outcomes.tell(answer(AnswerType.DUPLICATE, run_state=RunState.FAILED))
    result = outcomes.wait_own("r", 0)
    assert result is not None
    assert result.state is RunState.FAILED


def test_a_superseded_report_is_raised_at_the_next_one_of_its_step_once() -> None:
    outcomes = Outcomes(10)
    outcomes.tell(
        answer(AnswerType.SUPERSEDED, kind="StepProgressed", step="s", reason="older_attempt")
    )
    outcomes.check_report("r", "other", 1)
    with pytest.raises(ReportRefused, match="older_attempt") as caught:
        outcomes.check_report("r", "s", 1)
    assert caught.value.outcome is AnswerType.SUPERSEDED
    outcomes.check_report("r", "s", 1)


def superseded(reason: str, kind: str = "") -> Answer:
    return answer(AnswerType.SUPERSEDED, kind=kind, step="s", reason=reason)


@pytest.mark.parametrize("starts_again", [False, True])
def test_what_is_said_to_an_attempt_does_not_stop_the_next_one_of_the_same_client(
    starts_again: bool,
) -> None:
    outcomes = Outcomes(10)
    outcomes.check_report("r", "s", 1)
    if starts_again:  # before each attempt of its own, as a service may
        outcomes.begin("r")
    outcomes.check_report("r", "s", 2)
    assert not outcomes.tell(superseded("newer_attempt"))  # unasked: the first one is over
    outcomes.check_report("r", "s", 2)
    assert not outcomes.tell(superseded("older_attempt", "StepCompleted"))  # the first came late
    outcomes.check_report("r", "s", 2)
    outcomes.tell(ended())
    result = outcomes.told("r")
    assert result is not None
    assert result.succeeded
    with pytest.raises(ReportRefused, match="older_attempt"):
        outcomes.check_report("r", "s", 1)
    assert outcomes.tell(superseded("older_epoch", "StepProgressed"))  # the service has the step
    with pytest.raises(ReportRefused, match="older_epoch"):
        outcomes.check_report("r", "s", 2)


def test_a_next_attempt_begins_whatever_the_one_before_was_told() -> None:
    outcomes = Outcomes(10)
    outcomes.check_report("r", "s", 1)
    outcomes.tell(answer(AnswerType.REFUSED, kind="StepCompleted", step="s", reason="no_output"))
    outcomes.check_report("r", "s", 2)
    with pytest.raises(ReportRefused, match="no_output"):
        outcomes.check_report("r", "s", 1)


def test_a_lower_attempt_that_comes_late_does_not_stop_the_higher_one() -> None:
    outcomes = Outcomes(10)
    outcomes.check_report("r", "s", 2)
    outcomes.check_report("r", "s", 1)
    outcomes.tell(superseded("older_attempt", "StepStarted"))
    outcomes.check_report("r", "s", 2)


def test_a_request_hears_its_own_answer() -> None:
    outcomes = Outcomes(10)
    outcomes.tell(answer(AnswerType.ACCEPTED, kind="RunPaused"))
    outcomes.forget_reply("r", "RunPaused")
    with pytest.raises(WaitTimeout):
        outcomes.wait_reply("r", "RunPaused", 0)
    outcomes.tell(answer(AnswerType.REFUSED, kind="RunPaused", reason="run_ended"))
    with pytest.raises(ReportRefused, match="run_ended"):
        outcomes.wait_reply("r", "RunPaused", 0)


def test_memory_is_bounded() -> None:
    outcomes = Outcomes(3)
    for number in range(10):
        outcomes.tell(answer(AnswerType.ACCEPTED, run_id=f"r{number}"))
    assert len(outcomes._runs) == 3


def test_a_plan_beyond_the_message_limit_travels_in_parts() -> None:
    flow = Flow("f")
    for number in range(300):
        flow.observed(name=f"step-{number}", reads=[], writes=[], goal="g" * 100)
    started = RunStarted(
        run_id="r", flow="f", flow_version=1, plan=flow.plan(), context=values.pack({"a": 1})
    )
    assert list(in_parts(started)) == [started]
    first, *rest = in_parts(started, 8_000)
    assert isinstance(first, RunStarted)
    assert first.more
    steps = list(first.plan.steps)
    for part in rest:
        assert isinstance(part, PlanExtended)
        steps += part.steps
    assert tuple(steps) == flow.plan().steps
    # type: ignore[union-attr]
    assert [part.last for part in rest] == [False] * (len(rest) - 1) + [True]
    assert all(len(codec.encode(part)) <= 8_200 for part in (first, *rest))


def test_the_parts_of_a_plan_are_the_same_whoever_sends_them() -> None:
    """The service takes a start that comes from another process of the client for the same."""
    flow = Flow("f")
    for number in range(40):
        flow.observed(name=f"step-{number}", reads=[], writes=[], goal="g" * (number % 7))

    def parts(source: str, bytes_max: int) -> list[object]:
        started = RunStarted(
            run_id="r", flow="f", flow_version=1, plan=flow.plan(), context=values.pack({}),
            source=source, reply_to=source + "-1", sent_at_ms=len(source),
        )  # fmt: skip
        found = list(in_parts(started, bytes_max))
        return [
            (each.plan.steps, each.more) if isinstance(each, RunStarted) else each.steps  # type: ignore[attr-defined]
            for each in found
        ]

    sizes = range(400, 4_000, 7)
    assert [parts("a", size) for size in sizes] == [parts("b.example-7", size) for size in sizes]
