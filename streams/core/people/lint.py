"""What every escalation package must have. Tests run it over all packages that the fold makes."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.control import DecisionType
from dalsegno.schemas.outputs import Escalation
from dalsegno.schemas.package import FieldChange, Silence
from dalsegno.streams.core.people.origins import FACTS_MAX

_ASKS: Final = frozenset({"decision", "information", "approval"})


def lint(package: Escalation) -> list[str]:
    """What is missing or wrong, block by block in the order of a package; empty when nothing is."""
    found = _asked(package) + _conclusion(package) + _failure(package)
    if package.asked in _ASKS:
        found += _options(package) + _binding(package)
    return found


def _asked(package: Escalation) -> list[str]:
    found = []
    if package.asked not in _ASKS | {"notice"}:
        found.append(f"asked: {package.asked!r} is no kind of question")
    if not _sentence(package.question):
        found.append("question: say in a sentence what is asked")
    # A run that was put aside expires when it was to expire anyway.
    due = package.silence is not Silence.EXPIRES and package.asked in _ASKS
    if due and package.answer_by_ms <= package.at_ms:
        found.append("answer_by_ms: is not after the question")
    if not _sentence(package.silence_text):
        found.append("silence_text: say in a sentence what happens if nobody answers")
    if (package.silence is Silence.NOTHING) != (package.asked == "notice"):
        found.append("silence: only of a notice nothing comes, and nothing else of it")
    if not package.run_goal:
        found.append("run_goal: is missing")
    return found


def _conclusion(package: Escalation) -> list[str]:
    found = []
    written = [line for line in package.fields if line.change is FieldChange.WRITTEN]
    if written and not package.facts:
        found.append(f"facts: {written[0].field!r} was written, and no conclusion stands")
    if len(package.facts) > FACTS_MAX:
        found.append(f"facts: {len(package.facts)}, a conclusion has at most {FACTS_MAX}")
    found += [
        f"facts: {fact.field!r} lacks value, source or run version"
        for fact in package.facts
        if not (fact.field and fact.value and fact.source and fact.run_version > 0)
    ]
    return found


def _failure(package: Escalation) -> list[str]:
    found = []
    if not package.reason:
        found.append("reason: is missing")
    if not package.message:
        found.append("message: say what happened")
    if not package.cause:
        found.append("cause: is missing")
    if package.effects and not package.effect_lines:
        found.append("effect_lines: the step has effects, and none is shown")
    found += [
        f"effect_lines: {line.effect!r} lacks its step or key"
        for line in package.effect_lines
        if not (line.step and line.key)
    ]
    return found


def _options(package: Escalation) -> list[str]:
    found = []
    decisions = [option.decision for option in package.options]
    if sorted(decisions) != sorted(DecisionType):
        found.append("options: every decision stands there once, available or with its reason")
    if all(option.why_not for option in package.options):
        found.append("options: none is available")
    for option in package.options:
        if not _sentence(option.text):
            found.append(f"options: say in a sentence what {option.decision} does")
        if option.decision is DecisionType.SUPPLY and not option.why_not and not option.needs:
            found.append("options: a supply names the fields that it needs")
    if tuple(line.field for line in package.form) != package.missing_fields:
        found.append("form: asks for each missing field, and for nothing else")
    named = {line.field for line in package.fields}
    found += [
        f"fields: {field!r} is missing in the run and not shown"
        for field in package.missing_fields[:1]
        if field not in named
    ]
    for option in package.options:
        if option.decision is DecisionType.EDIT and not option.why_not:
            absent = [name for name in option.needs[:1] if name not in named]
            found += [f"fields: {name!r} can be edited and is not shown" for name in absent]
    found += [
        f"fields: {line.field!r} lacks its source"
        for line in package.fields
        if not line.source and line.change is not FieldChange.MISSING
    ]
    return found


def _binding(package: Escalation) -> list[str]:
    sizes = {
        "package_digest": package.package_digest,
        "plan_digest": package.plan_digest,
        "values_digest": package.values_digest,
    }
    found = [f"{name}: is no digest" for name, digest in sizes.items() if len(digest) != 32]
    if package.at_ms <= 0:
        found.append("at_ms: say when it was asked, beside its place in the log")
    return found


def _sentence(text: str) -> bool:
    return len(text) > 1 and text[0].isupper() and text[-1] in ".?!"
