"""What others choose is bounded before the state keeps it: a part is one changelog record."""

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
    plan_of,
    row,
    step,
    transitions,
    view,
)

from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import (
    EffectConfirmed,
    EffectIntended,
    FailureType,
    InformationSupplied,
    PlanExtended,
    RiskFlagged,
    RunCancelled,
    RunResumed,
    RunStarted,
    StepFailed,
)
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Unreadable

# What one record of the events topic, and of the changelog, may hold.
MESSAGE = 1_000_000
PART_MAX = 16_000_000
ESCALATION_MAX = 1_000_000


def largest_part(log: Log) -> int:
    return max(len(value) for value in log.partition.parts().values())


def wide(count: int = 16) -> Log:
    log = Log()
    log.start(plan_of(*(step(f"s{i}") for i in range(count))))
    return log


@pytest.mark.parametrize("kind", [FailureType.PERMANENT, FailureType.MISSING_INFO])
def test_words_of_failures(kind: FailureType) -> None:
    log = wide()
    for i in range(16):
        log.began(f"s{i}")
        log.put(
            StepFailed(
                run_id="r",
                step=f"s{i}",
                epoch=1,
                failure_type=kind,
                message="m" * MESSAGE,
                error_class="c" * MESSAGE,
                advice="a" * MESSAGE,
                missing_fields=("f", "x" * MESSAGE, *(f"f{n}" for n in range(1_000))),
            )
        )
        assert log.outcomes == [Outcome.APPLIED]
    assert largest_part(log) < PART_MAX
    assert all(len(msgspec.msgpack.encode(e)) < ESCALATION_MAX for e in escalations(log.outputs))
    assert_restores(log)


def test_a_field_that_can_be_asked_for_is_still_asked_for() -> None:
    log = wide(1)
    log.began("s0")
    log.put(
        StepFailed(
            run_id="r",
            step="s0",
            epoch=1,
            failure_type=FailureType.MISSING_INFO,
            missing_fields=("x" * MESSAGE, "f"),
        )
    )
    assert row(log, "s0").missing == ("f",)


def test_flags_workers_and_addresses() -> None:
    log = wide()
    for i in range(20):
        log.put(RiskFlagged(run_id="r", flag_id=str(i), flag=f"{i}" + "f" * MESSAGE))
    assert view(log).gate == "bad_flag"
    for i in range(16):
        log.began(f"s{i}", worker=f"{i}" * MESSAGE)
        assert log.outcomes == [Outcome.REFUSED]
        log.began(f"s{i}", reply_to="a" * MESSAGE)
        assert log.outcomes == [Outcome.REFUSED]
        assert transitions(log.outputs)[-1].reason == "bad_reply_to"
    assert largest_part(log) < PART_MAX


def test_a_one_shot_id_is_there_and_bounded() -> None:
    log = wide(1)
    for given in ("", "i" * 300):
        event = InformationSupplied(
            run_id="r",
            information_id=given,
            ops=msgspec.msgpack.encode([["set", ["f"], given[:1]]]),
            origin="o",
            reply_to="me",
        )
        out = log.put(event)
        assert log.outcomes == [Outcome.REFUSED]
        assert [a.reason for a in answers(out)] == ["bad_id"]


def test_results_of_effects() -> None:
    log = Log()
    log.policy(inline_bytes_max=MESSAGE)
    log.start(plan_of(step("s0")))
    log.began("s0")
    for i in range(16):
        key = effect_key(recovery_key("r", "s0"), "e", i)
        log.put(
            EffectIntended(
                run_id="r", step="s0", epoch=1, effect="e", occurrence=i, key=key,
                undo_input=b"u" * MESSAGE,
            )
        )  # fmt: skip
        log.put(
            EffectConfirmed(
                run_id="r", step="s0", epoch=1, effect="e", occurrence=i, result=b"r" * MESSAGE
            )
        )
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=FailureType.PERMANENT))
    assert largest_part(log) < PART_MAX
    (asked,) = escalations(log.outputs)
    assert len(asked.effects) == 16
    assert len(msgspec.msgpack.encode(asked)) < ESCALATION_MAX
    assert_restores(log)


def test_headers_of_waiting_events() -> None:
    log = Log()
    event = RunResumed(run_id="r", request_id="q")
    for _ in range(40):
        log.put(event, headers=(("h", b"x" * MESSAGE),))
    assert largest_part(log) < PART_MAX
    assert log.outcomes == [Outcome.DEAD_LETTERED]


def test_strays_and_reasons_of_ended_runs() -> None:
    log = wide(1)
    log.put(RunCancelled(run_id="r", request_id="q", reason="w" * MESSAGE))
    for i in range(20):
        key = effect_key(recovery_key("r", "s0"), f"{i}" * MESSAGE, 0)
        log.put(
            EffectIntended(
                run_id="r", step="s0", epoch=1, effect=f"{i}" * MESSAGE, occurrence=0, key=key
            )
        )
    assert largest_part(log) < 100_000


def test_a_plan_with_all_its_parts() -> None:
    log = Log()
    log.start(plan_of(step("s0")), more=True)
    for i in range(20):
        more = step(f"x{i}", goal="g" * MESSAGE)
        log.put(PlanExtended(run_id="r", extension_id=str(i), steps=(more,), last=False))
    assert log.outcomes == [Outcome.REFUSED]
    assert transitions(log.outputs)[-1].reason == "plan_too_large"
    assert largest_part(log) < PART_MAX


@pytest.mark.parametrize(
    "limit", ["steps_max", "effects_max", "early_bytes_max", "context_bytes_max"]
)
def test_a_policy_allows_no_more_than_a_part_can_hold(limit: str) -> None:
    log = Log()
    policy = msgspec.structs.replace(Policy(), **{limit: 10**9})
    log.put(PolicySet(partition=0, number=1, policy=policy))
    assert log.outcomes == [Outcome.REFUSED]


def test_a_policy_with_the_number_of_the_built_in_one_is_asked_anew() -> None:
    log = Log()
    log.start(chain(1), run_id="before")
    log.put(
        PolicySet(partition=0, number=0, policy=msgspec.structs.replace(Policy(), queues=("q",)))
    )
    again = Log(Partition.restore(0, log.partition.parts().items()))
    again.records = list(log.records)
    for each in (log, again):
        each.start(chain(1), run_id="after")
        assert each.outcomes == [Outcome.REFUSED]
    assert log.partition.parts() == again.partition.parts()


def test_a_quarantined_run_whose_clock_stood_still_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(plan_of(step("s0"), step("s1"), stop_clocks_for_people=True), ttl_ms=60_000)
    for name in ("s0", "s1"):
        log.began(name)
        log.put(StepFailed(run_id="r", step=name, epoch=1, failure_type=FailureType.PERMANENT))
    assert view(log).expires_ms == 0
    monkeypatch.setattr(
        "dalsegno.streams.core.context_store.Store.names", lambda _: 1 // 0, raising=True
    )
    log.put(RunCancelled(run_id="r", request_id="q"))
    monkeypatch.undo()
    assert view(log).state == "quarantined"
    assert log.partition.next_log_deadline_ms == log.now_ms + 60_000


# The longest name that a step may have, in bytes.
LONG = "\N{MUSICAL SYMBOL G CLEF}" * 120


def test_a_start_and_a_cancel_of_ten_thousand_steps() -> None:
    log = Log()
    log.start(plan_of(*(step(f"{i}{LONG}") for i in range(10_000))), reply_to="me")
    assert log.outcomes == [Outcome.APPLIED]
    (start,) = transitions(log.outputs)
    assert 100 < len(start.changes) < 10_000
    assert start.detail == f"{10_000 - len(start.changes)} more steps changed their state"
    for i in range(1_000):
        log.began(f"{i}{LONG}", reply_to="w")
    out = log.put(RunCancelled(run_id="r", request_id="q", reason="w" * MESSAGE, reply_to="me"))
    assert view(log).state == "cancelled"
    assert len(answers(out)) == 1_000 + 2
    (end,) = transitions(out)
    assert len(end.reason) < 20_000


def test_many_steps_with_short_names_are_all_told() -> None:
    log = Log()
    log.start(plan_of(step("first"), *(step(f"s{i}", needs=("first",)) for i in range(9_999))))
    log.began("first")
    (end,) = transitions(log.done("first", ops=[]))
    assert (len(end.changes), end.detail) == (10_000, "")


def test_words_of_others_in_transitions_and_answers() -> None:
    log = wide(2)
    log.began("s0")
    log.began("s1")
    events = (
        StepFailed(
            run_id="r", step="s" * MESSAGE, epoch=1, failure_type=FailureType.TRANSIENT,
            reply_to="me",
        ),
        StepFailed(
            run_id="r", step="s0", epoch=1, failure_type=FailureType.PERMANENT,
            source="\N{MUSICAL SYMBOL G CLEF}" * 250_000,
        ),
        StepFailed(
            run_id="r", step="s1", epoch=2, failure_type=FailureType.PERMANENT,
            source="x" * MESSAGE,
        ),
        InformationSupplied(
            run_id="r", information_id="i", origin="o", reply_to="me",
            ops=msgspec.msgpack.encode([["cat", ["x" * MESSAGE], "y"]]),
        ),
        RunCancelled(run_id="r", request_id="q", reason="w" * MESSAGE),
        EffectIntended(
            run_id="r", step="s" * MESSAGE, epoch=1, effect="e" * MESSAGE, occurrence=0, key="k"
        ),
        RunResumed(run_id="r", request_id="q", source="x" * MESSAGE),
    )  # fmt: skip
    for event in events:
        log.put(event)
    # The id of a run is the key as well.
    log.start(plan_of(step("s0")), run_id="x" * (MESSAGE // 2), reply_to="me")
    log.start(plan_of(step("s0")), run_id="y", flow="f" * MESSAGE, reply_to="me")
    assert log.outcomes == [Outcome.REFUSED]
    log.start(plan_of(step("s0")), run_id="y", context_schema="f" * MESSAGE, reply_to="me")
    assert log.outcomes == [Outcome.REFUSED]


def test_a_trace_that_is_none_is_left_out() -> None:
    log = Log()
    headers = (("traceparent", b"x" * MESSAGE),)
    start = RunStarted(
        run_id="r", flow="f", flow_version=1, plan=plan_of(step("s0")), context=b"\x80"
    )
    out = log.put(start, headers=headers)
    (trace,) = [o.action.trace for o in out if isinstance(o.action, Dispatch)]
    assert trace == ""


def test_an_end_with_a_large_context_and_many_words() -> None:
    log = Log()
    text = "x" * 900_000
    log.policy(inline_bytes_max=MESSAGE)
    log.start(plan_of(step("s0")), reply_to="me", context={"f": text})
    out = log.put(RunCancelled(run_id="r", request_id="q", reason="\N{EURO SIGN}" * 300_000))
    (end,) = answers(out)
    assert msgspec.msgpack.decode(end.context) == {"f": text}


def test_a_diff_whose_only_path_is_long() -> None:
    log = wide(1)
    for number, path in enumerate((["f", "k" * 400_000], ["f"])):
        ops = msgspec.msgpack.encode([["set", ["f"], {}], ["set", path, 1]])
        if number:
            ops = msgspec.msgpack.encode([["set", ["f", "q" * 400_000], 1]])
        log.put(InformationSupplied(run_id="r", information_id=str(number), ops=ops, origin="o"))
        assert log.outcomes == [Outcome.APPLIED]
        diff = transitions(log.outputs)[-1].diff
        assert len(diff) < 40_000
    assert msgspec.msgpack.decode(diff)["more"] == 1


def test_a_handoff_counts_every_byte_that_others_chose() -> None:
    for fields in (
        {"goal": "\N{EURO SIGN}" * 400_000},
        {"may_write": tuple(f"{i}{LONG}" for i in range(2_400))},
    ):
        log = Log()
        log.start(plan_of(step("s0", **fields)))
        assert row(log, "s0").reason == "handoff_too_large"
    log = wide(1)
    log.began("s0")
    for i in range(40):
        name = f"{i}" + "\N{EURO SIGN}" * 10_000
        key = effect_key(recovery_key("r", "s0"), name, 0)
        event = EffectIntended(run_id="r", step="s0", epoch=1, effect=name, occurrence=0, key=key)
        log.put(event)
        assert log.outcomes == [Outcome.APPLIED]
    log.put(StepFailed(run_id="r", step="s0", epoch=1, failure_type=FailureType.TRANSIENT))
    log.tick(5)
    assert row(log, "s0").reason == "handoff_too_large"
    asked = escalations(log.outputs)[-1]
    assert 0 < len(asked.effects) < 40
    assert f"{40 - len(asked.effects)} more effects" in asked.message


def test_dead_letters_are_the_record_and_little_more() -> None:
    log = Log()
    event = Unreadable("bad_body", "d" * MESSAGE, run_id="x" * MESSAGE, kind="k" * MESSAGE)
    (letter,) = dead_letters(log.put(event))
    assert len(msgspec.msgpack.encode(letter.letter)) < 8_192
