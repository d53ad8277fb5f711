"""An output that is larger than its topic takes costs its event, and nothing else."""

from __future__ import annotations

from string import printable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    dead_letters,
    escalations,
    handoffs,
    pack,
    plan_of,
    step,
    transitions,
    view,
)
from tests.unit.people.asking import decide

from dalsegno.schemas.codec import encode
from dalsegno.schemas.events import FailureType, RunStarted, StepCompleted, StepFailed
from dalsegno.schemas.outputs import (
    Answer,
    AnswerType,
    EffectStatus,
    FieldVersion,
    Handoff,
    JournalEntry,
    Outcome,
    RunState,
    StepChange,
    StepState,
    Transition,
    UndoEntry,
)
from dalsegno.streams.core import dispatch, ending, sizes
from dalsegno.streams.core.context import ContextChange

HUGE = 2_000_000
HEADERS = (("h", b"1"), ("h", b"2"))


def diff_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transitions are not cut to fit any more."""
    monkeypatch.setattr(ContextChange, "diff", lambda *_: bytes(HUGE))


def handoffs_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step with too many inputs goes to a worker and not to a person."""
    monkeypatch.setattr(dispatch, "_FRAME_BYTES", -100 * HUGE)


def reading(*names: str) -> Log:
    """A run whose second step reads what the first writes, and a neighbour."""
    log = Log()
    log.policy(context_bytes_max=4 * HUGE, inline_bytes_max=4 * HUGE)
    log.start(
        plan_of(step("s0", writes=("f0",)), step("s1", needs=("s0",), reads=("f0", *names))),
        context=dict.fromkeys(names, "x" * HUGE),
    )
    log.start(chain(1), run_id="neighbour")
    return log


def test_its_record_is_a_dead_letter_with_the_original_bytes_and_its_run_waits_for_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(chain(2))
    log.start(chain(1), run_id="neighbour")
    log.began("s0")
    before, counts = view(log), log.partition.output_counts
    with monkeypatch.context() as patch:
        diff_of_any_size(patch)
        done = StepCompleted(run_id="r", step="s0", epoch=1, ops=pack([["set", ["f0"], 1]]))
        out = log.put(done, value=b"the bytes", headers=HEADERS)
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    (letter,) = dead_letters(out)
    assert (letter.letter.reason, letter.letter.run_id) == ("output_too_large", "r")
    assert "an output to transitions of 2000" in letter.letter.detail
    assert (letter.key, letter.value, letter.headers) == (b"r", b"the bytes", HEADERS)
    assert letter.letter.offset == log.records[-1].offset
    (moved,) = transitions(out)
    assert (moved.reason, moved.run_state_after) == ("output_too_large", RunState.QUARANTINED)
    (asked,) = escalations(out)
    assert asked.reason == "quarantined"
    assert "2000" in asked.message
    assert view(log).steps == before.steps, "the run is as it was before the event"
    assert handoffs(out) == []
    assert log.partition.output_counts["queue.default"] == counts["queue.default"]
    log.began("s0", run_id="neighbour")
    log.done("s0", run_id="neighbour")
    assert view(log, "neighbour").state is RunState.SUCCEEDED
    assert_restores(log)


def test_a_handoff_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    log = reading("large")
    log.began("s0")
    with monkeypatch.context() as patch:
        handoffs_of_any_size(patch)
        out = log.done("s0")
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    (letter,) = dead_letters(out)
    assert "an output to queue.default" in letter.letter.detail
    assert handoffs(out) == []
    assert view(log).state is RunState.QUARANTINED
    assert_restores(log)


def test_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.policy(context_bytes_max=4 * HUGE, inline_bytes_max=4 * HUGE)
    log.start(chain(1), context={"large": "x" * HUGE}, reply_to="client")
    log.began("s0")
    with monkeypatch.context() as patch:
        # The context goes along whatever its size.
        patch.setattr(ending, "len", lambda _: 0, raising=False)
        out = log.done("s0")
    assert log.outcomes == [Outcome.DEAD_LETTERED]
    assert "an output to control" in dead_letters(out)[0].letter.detail
    assert answers(out) == []
    assert view(log).state is RunState.QUARANTINED
    assert_restores(log)


def test_a_timer_puts_only_its_run_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    log = reading()
    log.began("s0")
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=FailureType.TRANSIENT))
    assert view(log).state is RunState.WAITING
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "_NO_INPUTS", bytes(HUGE))
        handoffs_of_any_size(patch)
        for _ in range(600):
            out = log.tick()
            if view(log).state is RunState.QUARANTINED:
                break
    (moved,) = transitions(out)
    assert (moved.cause, moved.reason) == ("apply raised", "output_too_large")
    assert dead_letters(out) == [], "no record is at fault"
    assert view(log, "neighbour").state is RunState.RUNNING
    assert_restores(log)


def test_a_start_leaves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "_NO_INPUTS", bytes(HUGE))
        handoffs_of_any_size(patch)
        out = log.start(chain(1))
    (letter,) = dead_letters(out)
    assert (letter.letter.reason, letter.letter.kind) == ("output_too_large", RunStarted.__name__)
    assert log.partition.run("r") is None
    log.start(chain(1))
    assert view(log).state is RunState.RUNNING, "the id can be used again"
    assert_restores(log)


def test_a_person_lets_the_run_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.start(chain(2))
    log.began("s0")
    with monkeypatch.context() as patch:
        diff_of_any_size(patch)
        (asked,) = escalations(log.done("s0"))
    decide(log, asked, "retry")
    log.tick(5)
    log.began("s0", epoch=2)
    log.done("s0", epoch=2)
    assert [handoff.step for handoff in handoffs(log.outputs)] == ["s0", "s0", "s1"]


texts = st.text(alphabet=printable + "é漢😀", max_size=200)
names = st.text(alphabet="a漢😀", min_size=1, max_size=128)
blobs = st.binary(max_size=300)
changes = st.builds(
    StepChange, names, st.sampled_from(StepState), st.sampled_from(StepState), st.integers(0, 9)
)
entries = st.builds(
    JournalEntry, effect=names, occurrence=st.integers(0, 2**31 - 1), key=st.text("a", max_size=64),
    status=st.sampled_from(EffectStatus), epoch=st.integers(0, 2**31 - 1), result=blobs,
)  # fmt: skip
undone = st.builds(
    UndoEntry, effect=names, occurrence=st.integers(0, 2**31 - 1), key=st.text("a", max_size=64),
    status=st.sampled_from(EffectStatus), epoch=st.integers(0, 2**31 - 1), result=blobs,
    undo_input=blobs,
)  # fmt: skip


def several(of: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(of, max_size=40).map(tuple)


@given(
    st.builds(
        Transition, names, names, st.just(2**62), st.just(2**62), st.sampled_from(Outcome), texts,
        st.just(2**62), st.just(2**62), st.none() | st.sampled_from(RunState),
        st.sampled_from(RunState), several(changes), texts, st.just(2**31 - 1), texts, texts, blobs,
    )
)  # fmt: skip
def test_no_transition_is_larger_than_is_thought(transition: Transition) -> None:
    assert len(encode(transition)) <= sizes._audit_at_most(transition)


@given(
    st.builds(
        Handoff, names, names, st.just(2**31 - 1), names, st.just(2**31 - 1), texts, blobs,
        st.just(2**62), names, st.just(2**62), st.just(2**62), st.just(2**62), st.just(2**62),
        several(names), several(entries), st.none() | blobs, names, st.just(2**31 - 1),
        st.just(2**31 - 1), names, st.booleans(), several(undone), blobs, st.just(()),
        several(st.builds(FieldVersion, names, st.just(2**31 - 1))),
    )
)  # fmt: skip
def test_no_handoff_is_larger_than_is_thought(handoff: Handoff) -> None:
    assert len(encode(handoff)) <= sizes._dispatch_at_most(handoff)


@given(
    st.builds(
        Answer, reply_to=texts, run_id=names, answer=st.sampled_from(AnswerType), step=names,
        kind=names, reason=texts, detail=texts, context=blobs, run_state=st.sampled_from(RunState),
    )
)  # fmt: skip
def test_no_answer_is_larger_than_is_thought(answer: Answer) -> None:
    assert len(encode(answer)) <= sizes._reply_at_most(answer)
