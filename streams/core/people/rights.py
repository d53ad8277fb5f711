"""Who may decide what: by the policy in force where the decision stands in the log."""

from __future__ import annotations

from dalsegno.schemas.control import DecisionKey, DecisionMade, Policy


def rights_of(policy: Policy, holder: str) -> DecisionKey | None:
    """A key of this holder, whose keys all have the same rights; None for who has none.

    That a decision is signed by a key of its holder is checked before the fold sees it.
    """
    return next((key for key in policy.decision_keys if key.holder == holder), None)


def rights_fault(policy: Policy, event: DecisionMade, flow: str) -> str:
    """Why who decided may not decide so about a run of this flow; empty if they may."""
    rights = rights_of(policy, event.decided_by)
    if rights is None:
        return ""
    if rights.flows and flow not in rights.flows:
        return f"the keys of {event.decided_by!a} decide nothing about flow {flow!a}"
    if rights.decisions and event.decision not in rights.decisions:
        return f"the keys of {event.decided_by!a} do not allow to {event.decision}"
    return ""
