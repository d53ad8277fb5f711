"""Whether a package that was read somewhere still asks what its run asks."""

from __future__ import annotations

from dalsegno.schemas.outputs import Escalation, RunState
from dalsegno.streams.core.capturing import Held
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.people.options import NOTICE
from dalsegno.streams.core.people.state import Ask
from dalsegno.streams.core.runstate import Run
from dalsegno.streams.core.step_table import WITH_PEOPLE


def still_asked(held: Held | None, package: Escalation, log_ms: int) -> bool:
    """Whether nobody has decided on it, nothing newer stands in its place, and its time runs.

    A notice asks nothing: of it only the time counts. `held`: what the partition has of its run, as
    of an event behind the one that asked.
    """
    if log_ms >= package.answer_by_ms:
        return False
    if package.asked == NOTICE:
        return True
    if isinstance(held, Cold):
        return any(
            (each.digest, each.reminded) == (package.package_digest, package.reminder)
            for each in held.head.asked
        )
    ask = _open_ask(held, package.step) if isinstance(held, Run) else None
    return (
        ask is not None
        and ask.digest == package.package_digest
        and ask.reminded == package.reminder
    )


def _open_ask(run: Run, step: str) -> Ask | None:
    people = run.head.people
    if not step:
        if people is None:
            return None
        return people.aside if run.head.state is RunState.QUARANTINED else people.gate
    place = run.entry.plan.index.get(step)
    if place is None:
        return None
    row = run.rows[place]
    return row.handled.ask if row.handled is not None and row.state in WITH_PEOPLE else None
