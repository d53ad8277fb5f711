"""Who may decide what: keys that the policy limits to flows and to kinds of decisions."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.core.log import Log, chain, escalations, handoffs, transitions, view
from tests.unit.people.asking import asked, decide, failed

from dalsegno.schemas.control import DecisionKey, DecisionType, Policy
from dalsegno.schemas.outputs import Escalation, Outcome, RunState
from dalsegno.streams.core.controls import policy_fault

ANA = DecisionKey(key_id="ana-1", public_key=b"a" * 32, holder="ana")


def question(**rights: object) -> tuple[Log, Escalation]:
    """A step of flow `flow` that failed; only ana decides, with these rights."""
    log = Log()
    log.policy(decision_keys=(msgspec.structs.replace(ANA, **rights),))
    log.start(chain(1))
    log.began("s0")
    return log, asked(failed(log, "s0"))


def test_a_key_without_limits_decides_everything() -> None:
    log, package = question()
    assert handoffs(decide(log, package, "retry"))


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ({"flows": ("other",)}, "'flow'"),
        ({"decisions": (DecisionType.APPROVE,)}, "retry"),
        ({"flows": ("flow",), "decisions": (DecisionType.CANCEL,)}, "retry"),
    ],
)
def test_what_a_key_does_not_allow_is_refused_on_record(
    rights: dict[str, object], said: str
) -> None:
    log, package = question(**rights)
    out = decide(log, package, "retry")
    assert log.outcomes == [Outcome.REFUSED]
    (record,) = transitions(out)
    assert record.reason == "not_allowed"
    assert said in record.detail
    assert handoffs(out) == []
    assert escalations(out) == []


def test_rights_are_those_in_force_where_the_decision_stands_in_the_log() -> None:
    log, package = question(flows=("other",))
    decide(log, package, "cancel")
    assert log.outcomes == [Outcome.REFUSED]
    log.policy(decision_keys=(msgspec.structs.replace(ANA, flows=("flow", "other")),))
    decide(log, package, "cancel", decision_id="again")
    assert view(log).state is RunState.CANCELLED


def test_the_keys_of_one_holder_have_the_same_rights() -> None:
    other = msgspec.structs.replace(ANA, key_id="ana-2", public_key=b"b" * 32)
    assert policy_fault(Policy(decision_keys=(ANA, other))) == ""
    wider = msgspec.structs.replace(other, flows=("flow",))
    assert "different rights" in policy_fault(Policy(decision_keys=(ANA, wider)))
