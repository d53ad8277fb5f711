"""One-shot requests: a repeat is answered as the request was, whatever became possible since."""

from __future__ import annotations

import msgspec
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    pack,
    transitions,
    view,
)

from dalsegno.schemas import values
from dalsegno.schemas.events import (
    InformationSupplied,
    PlanExtended,
    RunCancelled,
    RunEvent,
    RunPaused,
    RunResumed,
)
from dalsegno.schemas.outputs import AnswerType, Outcome, RunState
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.runs import IDS_MAX


def begun() -> Log:
    log = Log()
    log.start(chain(2))
    return log


def refused_twice(log: Log, event: RunEvent, between: RunEvent | None = None) -> None:
    """The repeat hears word for word what the request heard, and changes nothing."""
    first = answers(log.put(event))
    assert log.outcomes == [Outcome.REFUSED]
    assert [a.answer for a in first] == [AnswerType.REFUSED]
    if between is not None:
        log.put(between)
        assert log.outcomes == [Outcome.APPLIED]
    before = view(log)
    out = log.put(event)
    assert log.outcomes == [Outcome.DUPLICATE]
    assert answers(out) == first
    assert transitions(out) == []
    assert view(log) == before
    assert_restores(log)


def test_a_resume_that_was_refused_does_not_undo_a_later_pause() -> None:
    log = begun()
    resume = RunResumed(run_id="r", request_id="q", reply_to="me")
    refused_twice(log, resume, RunPaused(run_id="r", request_id="p"))
    assert view(log).state is RunState.PAUSED


def test_information_for_another_version_is_refused_for_good() -> None:
    log = begun()
    ops = pack([["set", ["x"], 1]])
    event = InformationSupplied(
        run_id="r", information_id="i", ops=ops, origin="test", reply_to="me",
        expected_run_version=view(log).run_version + 1,
    )  # fmt: skip
    other = InformationSupplied(run_id="r", information_id="j", ops=ops, origin="test")
    refused_twice(log, event, other)


def test_information_for_the_version_that_the_run_has_is_taken_and_then_it_has_moved_on() -> None:
    log = begun()
    seen = view(log).run_version
    for number, outcome in (("i", Outcome.APPLIED), ("j", Outcome.REFUSED)):
        log.put(
            InformationSupplied(
                run_id="r", information_id=number, ops=pack([["set", ["x"], number]]),
                origin="test", expected_run_version=seen,
            )
        )  # fmt: skip
        assert log.outcomes == [outcome]
    assert values.unpack(view(log).context) == {"x": "i"}


def test_a_long_answer_is_kept_as_it_was_given() -> None:
    log = begun()
    event = InformationSupplied(
        run_id="r", information_id="i", ops=pack([["cat", ["x" * 50_000], "y"]]), origin="test",
        reply_to="me",
    )  # fmt: skip
    refused_twice(log, event)
    refused_twice(log, PlanExtended(run_id="r", extension_id="i", steps=(), reply_to="me"))


def test_a_refusal_is_remembered_over_a_restore_from_captured_parts() -> None:
    log = begun()
    parts = dict(log.partition.capture())
    event = RunResumed(run_id="r", request_id="q", reply_to="me")
    first = answers(log.put(event))
    for key, value in log.partition.capture():
        parts[key] = value
    held = {key: value for key, value in parts.items() if value is not None}
    assert held == log.partition.parts()
    again = Log(Partition.restore(0, held.items()))
    again.records = list(log.records)
    again.put(RunPaused(run_id="r", request_id="p"))
    assert answers(again.put(event)) == first
    assert view(again).state is RunState.PAUSED


def test_an_ended_run_knows_nothing_of_refusals_and_still_refuses() -> None:
    log = begun()
    event = RunResumed(run_id="r", request_id="q", reply_to="me")
    log.put(event)
    log.put(RunCancelled(run_id="r", request_id="c"))
    log.put(event)
    assert log.outcomes == [Outcome.REFUSED]


def test_what_is_remembered_of_refusals_is_bounded() -> None:
    log = begun()
    for number in range(IDS_MAX + 100):
        log.put(RunResumed(run_id="r", request_id=f"{number}" + "i" * 250, reply_to="me"))
        assert log.outcomes == [Outcome.REFUSED]
    pages = {k: v for k, v in log.partition.parts().items() if k[:1] == b"o"}
    assert sum(len(msgspec.msgpack.decode(page)) for page in pages.values()) <= IDS_MAX
    assert max(map(len, pages.values())) < 200_000
    assert_restores(log)
