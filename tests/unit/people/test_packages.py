"""The escalation package: every block, from the run as it was then, bounded and without secrets."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import (
    OUTPUT_BYTES_MAX,
    Log,
    chain,
    escalations,
    pack,
    plan_of,
    row,
    step,
    view,
)
from tests.unit.people.asking import asked, decide, failed
from tests.unit.saga.orders import intend

from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.events import EffectConfirmed, EffectIntended, InformationSupplied
from dalsegno.schemas.outputs import Escalation
from dalsegno.schemas.package import EffectFate, FieldChange, Silence
from dalsegno.schemas.plan import ContextField, RetryPolicy, StepRole
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.people.lint import lint
from dalsegno.streams.core.people.screen import screen
from dalsegno.streams.core.saga.turning import NOTHING_TO_UNDO

PAY = plan_of(
    step("quote", reads=("order",), writes=("price",), may_write=("note",), goal="find a price"),
    step("pay", needs=("quote",), reads=("order", "price", "card"), writes=("receipt",),
         goal="take the money"),
    step("ship", needs=("pay",), reads=("receipt",), writes=("parcel",), goal="hand it over"),
    secrets=("card",),
)  # fmt: skip


def intended(log: Log, name: str, effect: str, epoch: int = 1) -> None:
    key = effect_key(recovery_key("r", name), effect, 0)
    log.put(
        EffectIntended(run_id="r", step=name, epoch=epoch, effect=effect, occurrence=0, key=key)
    )


def confirmed(log: Log, name: str, effect: str, epoch: int = 1) -> None:
    log.put(
        EffectConfirmed(
            run_id="r", step=name, epoch=epoch, effect=effect, occurrence=0, result=pack(1)
        )
    )


def failed_payment() -> tuple[Log, Escalation]:
    log = Log()
    log.start(PAY, context={"order": {"id": 7}, "card": "4111-1111"})
    log.began("quote")
    intended(log, "quote", "reserve")
    confirmed(log, "quote", "reserve")
    log.done("quote", ops=[["set", ["price"], 12], ["set", ["note"], "gift"]])
    log.began("pay")
    intended(log, "pay", "charge")
    return log, asked(failed(log, "pay", message="card 4111-1111 was declined"))


def test_it_says_what_is_asked_by_when_and_what_silence_does() -> None:
    log, package = failed_payment()
    assert package.question == "How does the run go on, now that step pay cannot?"
    assert package.answer_by_ms == log.now_ms + log.partition.policy.person_wait_ms
    assert package.silence is Silence.FAILS
    assert package.silence_text == "The run ends as failed; what it has done stays as it is."
    assert package.run_goal == "flow (version 1): hand it over"
    assert package.goal == "take the money"


def test_facts_name_their_source_and_run_version() -> None:
    _, package = failed_payment()
    said = [(f.field, f.value, f.source, f.run_version) for f in package.facts]
    assert said == [
        ("order", '{"id":7}', "start", 1),
        ("price", "12", "quote", 2),
        ("card", "(secret)", "start", 1),
        ("note", '"gift"', "quote", 2),
    ]


def test_a_conclusion_has_at_most_seven_facts_the_newest_first() -> None:
    log = Log()
    log.start(chain(12))
    for i in range(11):
        log.began(f"s{i}")
        log.done(f"s{i}")
    log.began("s11")
    package = asked(failed(log, "s11"))
    assert [f.source for f in package.facts] == [f"s{i}" for i in range(10, 3, -1)]
    assert [f.run_version for f in package.facts] == list(range(12, 5, -1))


def test_secret_values_stand_nowhere_in_it() -> None:
    _, package = failed_payment()
    assert "4111" not in str(package)
    assert package.message == "card (secret) was declined"


def test_codes_that_quote_a_secret_are_masked_in_the_cause_too() -> None:
    log = Log()
    log.start(plan_of(step("a", reads=("key",)), secrets=("key",)), context={"key": "hunter2"})
    log.began("a")
    package = asked(failed(log, "a", error_class="bad hunter2", dependency="db hunter2"))
    assert package.error_class == "bad (secret)"
    assert package.cause == "permanent/permanent/bad (secret)/db (secret)"
    assert "hunter2" not in str(package)


def test_effects_of_the_run_stand_with_their_keys_and_what_is_known_of_them() -> None:
    _, package = failed_payment()
    lines = [(e.step, e.effect, e.fate, e.key) for e in package.effect_lines]
    assert lines == [
        ("pay", "charge", EffectFate.UNKNOWN, effect_key(recovery_key("r", "pay"), "charge", 0)),
        ("quote", "reserve", EffectFate.CONFIRMED,
         effect_key(recovery_key("r", "quote"), "reserve", 0)),
    ]  # fmt: skip


def test_options_say_what_they_redo_and_keep_and_why_others_are_not_there() -> None:
    _, package = failed_payment()
    options = {option.decision.value: option for option in package.options}
    retry = options["retry"]
    assert (retry.why_not, retry.redoes, retry.keeps) == ("", ("pay",), ("quote",))
    assert options["supply"].why_not == "no field is missing"
    assert options["edit"].needs == ("order", "price", "card")
    assert options["skip"].needs == ("receipt",), "ship reads it"
    assert options["approve"].why_not == "no approval is asked"
    assert options["compensate"].why_not == NOTHING_TO_UNDO
    assert not options["cancel"].why_not


def test_fields_that_come_from_outside_or_by_permission_name_who_wrote_them() -> None:
    log = Log()
    plan = plan_of(
        step("quote", writes=("price",), may_write=("note",)),
        step("pay", needs=("quote",), reads=("price", "note", "rate", "lost")),
    )
    log.start(plan)
    log.began("quote")
    log.done("quote", ops=[["set", ["price"], 1], ["set", ["note"], "n"]])
    ops = pack([["set", ["rate"], 3]])
    log.put(InformationSupplied(run_id="r", information_id="i", ops=ops, origin="bank"))
    (package,) = escalations(log.outputs)
    assert package.asked == "information"
    log.put(InformationSupplied(run_id="r", information_id="j", ops=pack([["set", ["lost"], 1]]),
                                origin="mail"))  # fmt: skip
    log.began("pay")
    package = asked(failed(log, "pay"))
    lines = [(line.field, line.change, line.source) for line in package.fields]
    assert lines == [
        ("price", FieldChange.WRITTEN, "quote"),
        ("note", FieldChange.WRITTEN, "quote"),
        ("rate", FieldChange.SUPPLIED, "bank"),
        ("lost", FieldChange.SUPPLIED, "mail"),
    ]


def test_a_second_package_shows_what_has_moved_and_what_was_decided_before() -> None:
    log, package = failed_payment()
    decide(log, package, "edit", [["set", ["price"], 9]])
    log.began("pay", epoch=2)
    again = asked(failed(log, "pay", epoch=2))
    moved = [(line.field, line.before, line.value) for line in again.fields if line.moved]
    assert moved == [("price", "12", "9")]
    (earlier,) = again.earlier
    assert (earlier.escalation_id, earlier.decision, earlier.decided_by) == ("r#1", "edit", "ana")
    assert again.escalation_id == "r#2"
    assert again.cause == package.cause


def test_reminders_say_what_the_package_said() -> None:
    log, package = failed_payment()
    log.policy(reminder_first_ms=1_000)
    decide(log, package, "edit", [["set", ["price"], 9], ["set", ["card"], "5500-0000"]])
    log.began("pay", epoch=2)
    again = asked(failed(log, "pay", epoch=2))
    (reminder,) = escalations(log.tick(2))
    assert reminder.fields == again.fields
    assert {line.field: line.before for line in reminder.fields if line.moved} == {
        "price": "12",
        "card": "(secret)",
    }
    assert "4111" not in str(reminder)
    assert "5500" not in str(reminder)


def test_a_package_knows_of_the_act_that_made_it() -> None:
    log = Log()
    plan = plan_of(
        step("a", compensate="ua"),
        step("b"),
        step("c", needs=("a",)),
        step("ua", role=StepRole.COMPENSATION),
    )
    log.start(plan)
    for name in ("a", "b"):
        log.began(name)
    log.done("a", ops=[])
    log.began("c")
    decide(log, asked(failed(log, "c")), "compensate")
    before = len(log.outputs)
    intend(log, "b", "late", undo="nosuch")
    (package,) = escalations(log.outputs[before:])
    assert (package.step, package.reason) == ("b", "no_way_back")
    assert [line.effect for line in package.effect_lines] == ["late"]
    assert [entry.effect for entry in package.effects] == ["late"]


def test_a_verdict_stands_with_its_evidence() -> None:
    log = Log()
    log.start(chain(1, retry=RetryPolicy(max_infra_attempts=1)))
    log.began("s0")
    verdict = StallSuspected(
        run_id="r", step="s0", epoch=1, verdict=Verdict.SILENT, worker="w", incarnation=1,
        events_offset=log.partition.position, heartbeats_at_ms=log.now_ms, elapsed_ms=12_000,
        threshold_ms=10_000, evidence="no heartbeat for 12 s, usual are 1 s",
    )  # fmt: skip
    package = asked(log.put(verdict))
    assert package.reason == "infra_attempts_exhausted"
    assert package.evidence == "silent: no heartbeat for 12 s, usual are 1 s"
    assert package.infra_attempts == 1


def test_large_runs_make_packages_that_fit_a_record() -> None:
    log = Log()
    wide = tuple(f"{'f' * 100}{i}" for i in range(300))
    plan = plan_of(
        *(step(f"{'s' * 100}{i}", writes=(f"o{i}",)) for i in range(400)),
        step("last", reads=wide, goal="g" * 100_000),
    )
    log.start(plan, context=dict.fromkeys(wide, "v" * 1_000))
    log.began("last")
    package = asked(failed(log, "last", message="m" * 100_000, advice="a" * 100_000))
    assert len(package.fields) == 24
    assert max(len(line.value) for line in package.fields) == 240


BLOCKS = [
    "question", "silence_text", "run_goal", "message", "reason", "cause", "options",
    "package_digest", "plan_digest", "values_digest", "facts", "effect_lines", "fields", "at_ms",
]  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
def test_the_linter_refuses_a_package_with_a_block_missing(block: str) -> None:
    _, package = failed_payment()
    assert lint(package) == []
    empty = type(getattr(package, block))()
    assert lint(msgspec.structs.replace(package, **{block: empty})) != []


def test_the_linter_refuses_facts_and_effects_without_their_source() -> None:
    _, package = failed_payment()
    fact = msgspec.structs.replace(package.facts[0], source="")
    line = msgspec.structs.replace(package.effect_lines[0], key="")
    field = msgspec.structs.replace(package.fields[0], source="")
    for changed in ({"facts": (fact,)}, {"effect_lines": (line,)}, {"fields": (field,)}):
        assert lint(msgspec.structs.replace(package, **changed)) != []
    assert lint(msgspec.structs.replace(package, facts=package.facts * 3)) != []


def test_blocks_stand_on_the_screen_in_the_order_in_which_a_person_needs_them() -> None:
    log, package = failed_payment()
    decide(log, package, "edit", [["set", ["price"], 9]])
    log.began("pay", epoch=2)
    blocks = dict(screen(asked(failed(log, "pay", epoch=2))))
    assert list(blocks) == [
        "Asked", "Goal", "Known so far", "What happened", "Done to the outside", "You can",
        "You cannot", "Fields", "Evidence",
    ]  # fmt: skip
    assert blocks["Asked"][0] == "How does the run go on, now that step pay cannot?"
    assert "If nobody answers: The run ends as failed" in blocks["Asked"][1]
    happened = blocks["What happened"]
    assert happened[0] == "the card was declined", "a plain sentence first"
    assert happened[-1] == "code: permanent/permanent/Declined", "the code last"
    assert any(line.startswith("! price = 9") and "12 when" in line for line in blocks["Fields"])
    assert "decided before: edit by ana" in "".join(blocks["Evidence"])
    assert blocks["Evidence"][-1].startswith("bound to ")


def test_a_question_for_facts_shows_what_to_fill_in_before_the_fields() -> None:
    log = Log()
    log.start(
        plan_of(step("a", reads=("x",)), fields=(ContextField(name="x", text="What it is."),))
    )
    blocks = dict(screen(asked(log.outputs)))
    assert blocks["To fill in"] == ["x (any): What it is.   (for a)"]
    headings = list(blocks)
    assert headings.index("To fill in") < headings.index("Fields")


def test_the_largest_form_fits_a_record() -> None:
    log = Log()
    names = tuple(f"{chr(0x1F000) * 124}{i:04}" for i in range(64))
    readers = (step(f"{chr(0x1F000) * 124}{i:04}", needs=("ask",), reads=names) for i in range(9))
    fields = (ContextField(name=name, text=chr(0x1F000) * 240) for name in names)
    log.start(plan_of(step("ask"), *readers, fields=tuple(fields)))
    log.began("ask")
    package = asked(failed(log, "ask", kind="missing_info", missing_fields=names))
    assert len(package.form) == 64
    assert len(encode(package)) < OUTPUT_BYTES_MAX


def test_the_same_run_makes_the_same_package() -> None:
    _, one = failed_payment()
    _, other = failed_payment()
    assert one == other


def test_steps_keep_what_they_were_asked_over_the_next_state() -> None:
    log, package = failed_payment()
    assert row(log, "pay").state == "escalated"
    assert view(log).waiting_for == "person"
    assert package.package_digest
