"""A package as text on one screen, in the order in which a person needs it; codes stand last."""

import datetime as dt
from collections.abc import Iterator

from dalsegno.schemas.outputs import Escalation
from dalsegno.schemas.package import Fact, FieldChange, Option

_EFFECTS_SHOWN = 8
_FIELDS_SHOWN = 10
_NAMES_SHOWN = 6


def screen(package: Escalation) -> list[tuple[str, list[str]]]:
    """Blocks as (heading, lines). Nothing in them is markup."""
    blocks = [
        ("Asked", list(_asked(package))),
        ("Goal", [package.run_goal, *([f"this step: {package.goal}"] if package.goal else [])]),
        ("Known so far", [_fact(each) for each in package.facts] or ["nothing yet"]),
        ("What happened", list(_failure(package))),
        ("Done to the outside", list(_effects(package)) or ["nothing"]),
        ("You can", [_option(each) for each in package.options if not each.why_not]),
        ("You cannot", [f"{e.decision}: {e.why_not}" for e in package.options if e.why_not]),
        ("To fill in", list(_form(package))),
        ("Fields", list(_fields(package))),
        ("Evidence", list(_evidence(package))),
    ]
    return [(heading, lines) for heading, lines in blocks if lines]


def _asked(package: Escalation) -> Iterator[str]:
    yield package.question
    if package.asked != "notice":
        yield f"by {when(package.answer_by_ms)} UTC. If nobody answers: {package.silence_text}"
    if package.reminder:
        yield f"reminder {package.reminder}"


def _fact(fact: Fact) -> str:
    return f"{fact.field} = {fact.value}   ({fact.source}, run version {fact.run_version})"


def _failure(package: Escalation) -> Iterator[str]:
    yield package.message
    if package.advice:
        yield f"advice of the step: {package.advice}"
    if package.evidence:
        yield f"evidence: {package.evidence}"
    used = f"attempts used: {package.attempts} failed, {package.infra_attempts} lost"
    if package.asked != "approval":
        yield used
    yield f"code: {package.cause}"


def _effects(package: Escalation) -> Iterator[str]:
    for line in package.effect_lines[:_EFFECTS_SHOWN]:
        yield f"{line.fate}: {line.step}/{line.effect} #{line.occurrence}, key {line.key}"
    more = len(package.effect_lines) - _EFFECTS_SHOWN
    if more > 0 or package.effects_more:
        yield f"and {max(0, more) + package.effects_more} more: --json lists them"


def _option(option: Option) -> str:
    said = f"{option.decision}: {option.text}"
    for word, names in (
        ("redoes", option.redoes),
        ("keeps", option.keeps),
        ("undoes", option.undoes),
        ("needs", option.needs),
    ):
        if names:
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            said += f" {word} {', '.join(names[:_NAMES_SHOWN])}{more};"
    said = said.rstrip(";")
    return said + ("" if option.reversible else " (cannot be taken back)")


def _form(package: Escalation) -> Iterator[str]:
    for field in package.form[:_FIELDS_SHOWN]:
        said = f": {field.text}" if field.text else ""
        readers = ", ".join(field.needed_by[:_NAMES_SHOWN])
        needed = f"   (for {readers})" if readers else ""
        secret = ", secret" if field.secret else ""
        yield f"{field.field} ({field.type}{secret}){said}{needed}"
    if len(package.form) > _FIELDS_SHOWN:
        yield f"and {len(package.form) - _FIELDS_SHOWN} more: --json lists them"


def _fields(package: Escalation) -> Iterator[str]:
    for line in package.fields[:_FIELDS_SHOWN]:
        if line.change is FieldChange.MISSING:
            yield f"- {line.field}: missing"
            continue
        sign = "!" if line.moved else "=" if line.change is FieldChange.GIVEN else "+"
        moved = f", {line.before or 'missing'} when you were asked before" if line.moved else ""
        yield (
            f"{sign} {line.field} = {line.value}   ({line.change} by {line.source},"
            f" run version {line.run_version}{moved})"
        )
    if len(package.fields) > _FIELDS_SHOWN:
        yield f"and {len(package.fields) - _FIELDS_SHOWN} more: --json lists them"


def _evidence(package: Escalation) -> Iterator[str]:
    yield f"run {package.run_id}, step {package.step or '-'}, epoch {package.epoch}"
    yield f"events[{package.partition}] at offset {package.offset}, {when(package.at_ms)} UTC"
    for each in package.earlier:
        yield (
            f"decided before: {each.decision} by {each.decided_by}, {when(each.at_ms)} UTC:"
            f" {each.reason}"
        )
    yield f"plan {package.plan_digest.hex()[:16]}, values {package.values_digest.hex()[:16]}"
    yield f"bound to {package.package_digest.hex()}, run version {package.run_version}"


def when(at_ms: int) -> str:
    """Unix milliseconds as UTC text to the second."""
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
