"""Risk flags of a run, and the gate that they close."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import close_gate
from dalsegno.streams.core.names import name_fault

# A run with more flags than this has one more: a person looks, and nothing grows without a bound.
FLAGS_MAX: Final = 64


def raise_flags(draft: Draft, flags: tuple[str, ...]) -> None:
    """Sets flags; one that the plan gates on stops further steps until a person agrees."""
    if not flags:
        return
    head = draft.head
    gates = draft.plan.plan.gates
    for flag in flags:
        if flag in head.flags:
            continue
        if name_fault(flag):
            # Not kept, as it may be of any length; it is not ignored either.
            close_gate(draft, "bad_flag", "a risk flag was raised whose name cannot be kept")
            continue
        if len(head.flags) >= FLAGS_MAX:
            close_gate(draft, "too_many_flags", f"more than {FLAGS_MAX} risk flags")
            return
        head.flags = (*head.flags, flag)
        draft.facts = True
        if flag in gates:
            close_gate(draft, f"flag:{flag}", f"the run carries the risk flag {flag!a}")
