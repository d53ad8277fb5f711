"""The history of one run, folded from the log."""

from collections.abc import Iterator

import msgspec

from dalsegno.ops.folding import Folded
from dalsegno.schemas import values
from dalsegno.schemas.control import StallSuspected
from dalsegno.schemas.outputs import Transition
from dalsegno.streams.core.actions import Audit


def transitions_of(folded: Iterator[Folded], run_id: str, to: int | None) -> Iterator[Transition]:
    """Transitions of the run in log order; ends after the one that reaches run version `to`."""
    for each in folded:
        for output in each.outputs:
            action = output.action
            if not isinstance(action, Audit) or action.transition.run_id != run_id:
                continue
            yield _with_verdict(action.transition, each.record.event)
            if to is not None and action.transition.run_version_after >= to:
                return


def _with_verdict(transition: Transition, event: object) -> Transition:
    """A verdict that was applied says in the history which it was and why."""
    if not isinstance(event, StallSuspected) or transition.reason:
        return transition
    if transition.cause != type(event).__name__:
        return transition  # a deadline that passed on the way to it
    said = ": ".join(filter(None, (event.verdict.value, event.evidence)))
    return msgspec.structs.replace(transition, reason=said)


def diff_lines(transition: Transition) -> list[str]:
    """What changed in the context, one line per path; `+` added, `~` changed, `-` removed."""
    return lines_of(transition.diff)


def lines_of(packed: bytes) -> list[str]:
    """As `diff_lines`, for the diff alone."""
    if not packed:
        return []
    diff = values.unpack(packed)
    assert isinstance(diff, dict)
    lines = []
    for mark, name in (("+", "added"), ("~", "changed")):
        entries = diff.get(name)
        if isinstance(entries, dict):
            lines += [f"{mark} {path or '/'} {_how(how)}" for path, how in entries.items()]
    removed = diff.get("removed")
    if isinstance(removed, list):
        lines += [f"- {path!s}" for path in removed]
    if diff.get("more"):
        lines.append(f"and {diff['more']!r} changes more")
    return lines


def _how(how: values.Value) -> str:
    """One change as the diff tells it: see `dalsegno.streams.core.context_diff`."""
    match how:
        case ["set", value]:
            return f"= {value!r}"
        case ["cat", text]:
            return f"+= {text!r}"
        case ["spl", index, count, items]:
            return f"[{index!r}:+{count!r}] = {items!r}"
        case ["secret"]:
            return "(secret)"
        case ["cut", size]:
            return f"({size!r} bytes)"
        case other:
            return repr(other)
