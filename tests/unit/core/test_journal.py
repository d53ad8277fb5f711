"""The journal of effects: what survives attempts, and who is asked about what is unknown."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    Log,
    answers,
    assert_restores,
    chain,
    escalations,
    handoffs,
    plan_of,
    row,
    step,
    transitions,
    view,
)

from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    RunCancelled,
    StepFailed,
)
from dalsegno.schemas.outputs import AnswerType, EffectStatus, Outcome, StepState
from dalsegno.schemas.plan import UnknownPolicy
from dalsegno.streams.core.effects import effect_key, recovery_key


def intent(
    effect: str = "charge", occurrence: int = 0, epoch: int = 1, **fields: object
) -> EffectIntended:
    event = EffectIntended(
        run_id="r",
        step="s0",
        epoch=epoch,
        effect=effect,
        occurrence=occurrence,
        key=effect_key(recovery_key("r", "s0"), effect, occurrence),
    )
    return msgspec.structs.replace(event, **fields)


def confirm(effect: str = "charge", occurrence: int = 0, epoch: int = 1) -> EffectConfirmed:
    return EffectConfirmed(
        run_id="r", step="s0", epoch=epoch, effect=effect, occurrence=occurrence, result=b"\x01"
    )


def fail(log: Log, epoch: int = 1) -> None:
    log.put(StepFailed(run_id="r", step="s0", epoch=epoch, failure_type=FailureType.TRANSIENT))


def next_handoff(log: Log):  # type: ignore[no-untyped-def]
    for _ in range(120):
        out = handoffs(log.tick())
        if out:
            return out[0]
    raise AssertionError("no handoff came")


def running(unknown: UnknownPolicy = UnknownPolicy.RETRY) -> Log:
    log = Log()
    log.start(plan_of(step("s0", unknown=unknown)))
    log.began("s0")
    return log


def test_the_next_attempt_gets_what_was_confirmed_and_what_is_unknown() -> None:
    log = running()
    for occurrence in (0, 1):
        log.put(intent(occurrence=occurrence))
    log.put(confirm(occurrence=0))
    assert (view(log).effects, view(log).effects_unknown) == (2, 1)
    fail(log)
    assert_restores(log)
    handoff = next_handoff(log)
    assert [(e.occurrence, e.status) for e in handoff.effects] == [
        (0, EffectStatus.CONFIRMED),
        (1, EffectStatus.UNKNOWN),
    ]
    assert handoff.effects[0].result == b"\x01"
    assert handoff.effects[0].key != handoff.effects[1].key


def test_a_key_that_is_not_the_pure_function_is_refused() -> None:
    log = running()
    out = log.put(intent(key="mine", reply_to="w"))
    assert log.outcomes == [Outcome.REFUSED]
    assert answers(out)[0].reason == "wrong_key"
    log.put(msgspec.structs.replace(intent(), occurrence=-1))
    assert log.outcomes == [Outcome.REFUSED]
    assert view(log).effects == 0


def test_repeats_of_intents_and_confirmations_are_duplicates() -> None:
    log = running()
    for event in (intent(), confirm()):
        log.put(event)
        assert log.outcomes == [Outcome.APPLIED]
        assert log.put(event) == []
        assert log.outcomes == [Outcome.DUPLICATE]
    assert (view(log).effects, view(log).effects_unknown) == (1, 0)


def test_a_confirmation_without_an_intent_is_refused() -> None:
    log = running()
    log.put(confirm())
    assert log.outcomes == [Outcome.REFUSED]


@pytest.mark.parametrize("unknown", [UnknownPolicy.CHECK, UnknownPolicy.PERSON])
def test_an_effect_that_waits_for_an_answer_gets_it_again_word_for_word(
    unknown: UnknownPolicy,
) -> None:
    log = running(unknown)
    first = answers(log.put(intent(reply_to="w")))
    assert [a.answer for a in first] == [AnswerType.ACCEPTED]
    log.put(confirm(effect="other"))
    assert answers(log.put(intent(reply_to="w"))) == first
    assert log.outcomes == [Outcome.DUPLICATE]


def test_an_effect_that_need_not_wait_is_not_answered() -> None:
    log = running()
    assert answers(log.put(intent(reply_to="w"))) == []


def test_a_confirmed_effect_may_not_be_done_again() -> None:
    log = running()
    log.put(intent())
    log.put(confirm())
    fail(log)
    next_handoff(log)
    log.began("s0", epoch=2)
    out = log.put(intent(epoch=2, reply_to="w"))
    assert answers(out)[0].reason == "already_confirmed"


def test_an_unknown_effect_is_intended_again_under_the_same_key() -> None:
    log = running(UnknownPolicy.CHECK)
    log.put(intent())
    fail(log)
    next_handoff(log)
    log.began("s0", epoch=2)
    out = log.put(intent(epoch=2, reply_to="w"))
    assert (answers(out)[0].answer, answers(out)[0].reason) == (
        AnswerType.ACCEPTED,
        "unknown_before",
    )
    assert answers(log.put(intent(epoch=2, reply_to="w"))) == answers(out)
    assert view(log).effects == 1


def test_an_unknown_effect_of_policy_person_stops_the_step_before_it_runs_again() -> None:
    log = running(UnknownPolicy.PERSON)
    log.put(intent())
    fail(log)
    out = log.tick(60)
    assert handoffs(out) == []
    (asked,) = escalations(out)
    assert asked.reason == "unknown_effect"
    assert asked.effects[0].status is EffectStatus.UNKNOWN
    assert row(log, "s0").state is StepState.ESCALATED


def test_a_superseded_attempts_intent_is_kept_and_its_confirmation_resolves_it() -> None:
    log = running()
    fail(log)
    next_handoff(log)
    out = log.put(intent(epoch=1, reply_to="w"))
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert answers(out)[0].answer is AnswerType.SUPERSEDED
    assert (view(log).effects, view(log).effects_unknown) == (1, 1)
    assert len(transitions(out)) == 1
    log.put(confirm(epoch=1))
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert view(log).effects_unknown == 0
    assert_restores(log)


def test_an_effect_intended_after_the_end_is_put_to_a_person_once() -> None:
    log = running()
    log.put(RunCancelled(run_id="r", request_id="c"))
    out = log.put(intent(reply_to="w"))
    assert log.outcomes == [Outcome.SUPERSEDED]
    assert escalations(out)[0].reason == "effect_after_end"
    assert answers(out)[0].answer is AnswerType.CANCELLED
    assert escalations(log.put(intent())) == []
    assert_restores(log)


def test_the_journal_is_bounded_and_its_pages_are_small() -> None:
    log = Log()
    log.policy(effects_max=40)
    log.start(chain(1))
    log.began("s0")
    for occurrence in range(40):
        log.partition.capture()
        log.put(intent(occurrence=occurrence))
        pages = [key for key, _ in log.partition.capture() if key[:1] == b"j"]
        assert len(pages) == 1, "an effect writes its own page only"
    log.put(intent(occurrence=40))
    assert log.outcomes == [Outcome.REFUSED]
    assert_restores(log)


def ended(*occurrences: int) -> Log:
    """A run that was cancelled while these effects were unknown."""
    log = running()
    for occurrence in occurrences:
        log.put(intent(occurrence=occurrence))
    log.put(RunCancelled(run_id="r", request_id="c"))
    assert view(log).effects_unknown == len(occurrences)
    return log


def test_a_confirmation_after_the_end_resolves_what_was_unknown_once() -> None:
    log = ended(0, 1)
    for _ in range(2):
        out = log.put(confirm(occurrence=1))
        assert log.outcomes == [Outcome.SUPERSEDED]
        assert [t.reason for t in transitions(out)] == ["run_ended"]
        assert view(log).effects_unknown == 1
        assert_restores(log)
    log.put(confirm(occurrence=7))
    assert view(log).effects_unknown == 1, "it was never intended"
    log.put(confirm(occurrence=0))
    assert view(log).effects_unknown == 0


def test_an_intent_after_the_end_is_unknown_until_it_is_confirmed() -> None:
    log = ended(0)
    log.put(intent(occurrence=0))
    assert view(log).effects_unknown == 1, "a repeat of what the journal had"
    for _ in range(2):
        log.put(intent(occurrence=1))
        assert view(log).effects_unknown == 2
    log.put(confirm(occurrence=1))
    assert view(log).effects_unknown == 1
    log.put(intent(occurrence=1))
    assert view(log).effects_unknown == 1, "a repeat of what is known by now"
    assert_restores(log)


def test_the_stub_is_written_when_a_confirmation_changes_it() -> None:
    log = ended(0)
    log.partition.capture()
    log.put(confirm())
    assert any(key == b"rr" for key, _ in log.partition.capture())
    log.put(confirm())
    assert not any(key == b"rr" for key, _ in log.partition.capture())


def test_what_a_stub_keeps_of_unknown_effects_is_bounded() -> None:
    log = ended(*range(400))
    assert max(len(v) for k, v in log.partition.parts().items() if k[:1] == b"r") < 8_192
    for occurrence in range(400):
        log.put(confirm(occurrence=occurrence))
    assert view(log).effects_unknown == 400 - 256, "the others may have happened, for all we know"
