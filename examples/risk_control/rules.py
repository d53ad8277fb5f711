"""What each service answers: pure functions of the application, so a right outcome can be computed.

Amounts are whole euros, scores whole points from 300 to 850.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

Facts = Mapping[str, object]
Answer = dict[str, object]


def _draw(application: str, what: str, below: int) -> int:
    """A number in [0, below) that depends on the application and the question alone."""
    digest = hashlib.sha256(f"{application}/{what}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % below


def applicant(number: int, seed: int) -> Answer:
    """The first facts of application `number`."""
    name = f"app-{seed}-{number:04d}"
    return {
        "application": name,
        "age": 21 + _draw(name, "age", 50),
        "declared_income": 18_000 + 500 * _draw(name, "income", 160),
        "amount": 1_000 + 250 * _draw(name, "amount", 120),
    }


def identity(application: str, _: Facts) -> Answer:
    return {"verified": True, "document": f"doc-{_draw(application, 'document', 10**9)}"}


def bureau(application: str, _: Facts) -> Answer:
    return {
        "debts": 100 * _draw(application, "debts", 400),
        "defaults": _draw(application, "defaults", 3),
    }


def data_validation(_: str, facts: Facts) -> Answer:
    bureau_answer, who = facts["bureau"], facts["applicant"]
    if not isinstance(bureau_answer, Mapping) or not isinstance(who, Mapping):
        raise TypeError("validation needs the applicant and the bureau's answer as maps")
    return {
        "debts": bureau_answer["debts"],
        "defaults": bureau_answer["defaults"],
        "income": who["declared_income"],
        "amount": who["amount"],
    }


def income(application: str, facts: Facts) -> Answer:
    validated = _mapping(facts, "validated")
    share = 80 + _draw(application, "proved", 21)
    return {"proved_income": _whole(validated, "income") * share // 100}


def fraud(application: str, _: Facts) -> Answer:
    return {"risk": _draw(application, "fraud", 100)}


def scoring(_: str, facts: Facts) -> Answer:
    validated = _mapping(facts, "validated")
    proved = _whole(_mapping(facts, "income"), "proved_income")
    risk = _whole(_mapping(facts, "fraud"), "risk")
    points = 850 - 120 * _whole(validated, "defaults") - risk
    points -= 200 * _whole(validated, "debts") // max(proved, 1)
    points -= 100 * _whole(validated, "amount") // max(proved, 1)
    return {"score": max(300, min(850, points))}


def decision(_: str, facts: Facts) -> Answer:
    score = _whole(_mapping(facts, "score"), "score")
    return {"decision": "approved" if score >= 620 else "declined", "on_score": score}


SERVICES: dict[str, Callable[[str, Facts], Answer]] = {
    "identity": identity,
    "bureau": bureau,
    "data-validation": data_validation,
    "income": income,
    "fraud": fraud,
    "scoring": scoring,
    "decision": decision,
}


def expected(number: int, seed: int) -> Answer:
    """Score and decision that a run without any fault comes to."""
    who = applicant(number, seed)
    name = str(who["application"])
    facts: dict[str, object] = {"applicant": who}
    facts["identity"] = identity(name, facts)
    facts["bureau"] = bureau(name, facts)
    facts["validated"] = data_validation(name, facts)
    facts["income"] = income(name, facts)
    facts["fraud"] = fraud(name, facts)
    facts["score"] = scoring(name, facts)
    return {**scoring(name, facts), **decision(name, facts)}


def _mapping(facts: Facts, field: str) -> Mapping[str, object]:
    value = facts[field]
    if not isinstance(value, Mapping):
        raise TypeError(f"{field} must be a map, not {type(value).__name__}")
    return value


def _whole(values: Mapping[str, object], field: str) -> int:
    value = values[field]
    if not isinstance(value, int):
        raise TypeError(f"{field} must be a whole number, not {type(value).__name__}")
    return value
