"""Facts from outside the plan, and the steps that wait for them."""

from __future__ import annotations

from dalsegno.schemas.events import InformationSupplied
from dalsegno.streams.core.context import ContextError
from dalsegno.streams.core.context_versions import note_versions
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.forms import misfit
from dalsegno.streams.core.moment import ACCEPTED, Ruling, refused
from dalsegno.streams.core.names import DETAIL_CHARS_MAX
from dalsegno.streams.core.people.asking import answered
from dalsegno.streams.core.people.origins import note_outside
from dalsegno.streams.core.step_table import MISSING_INFO


def information_supplied(draft: Draft, event: InformationSupplied) -> Ruling:
    """Applies the operations; steps whose missing fields are there now go on."""
    head = draft.head
    expected = event.expected_run_version
    if expected is not None and expected != head.run_version:
        return refused(
            "version_conflict", f"expected run version {expected}, is {head.run_version}"
        )
    try:
        draft.change = draft.run.context.apply(event.ops, draft.now.policy)
        note_versions(draft, draft.change, event.context_schema_version)
    except ContextError as error:
        return refused("bad_ops", str(error))
    if fault := misfit(draft, draft.change.changed, draft.change):
        return refused("wrong_type", fault)
    draft.facts = True
    note_outside(draft, draft.change.changed, event.origin[:DETAIL_CHARS_MAX])
    recheck_missing(draft)
    return ACCEPTED


def recheck_missing(draft: Draft, changed: tuple[str, ...] | None = None) -> None:
    """Steps that waited for fields and have them now go on.

    `changed`: fields that a step has just written, one of which the waiting step must have asked
    for; None when the information came from outside, for whoever waits.
    """
    head = draft.head
    context = draft.context
    still: list[int] = []
    for place in head.missing:
        row = draft.peek(place)
        if row.state is not MISSING_INFO:
            continue
        missing = row.past.missing if row.past is not None else ()
        asked = changed is None or any(field in changed for field in missing)
        if asked and not context.missing(missing):
            row = draft.row(place)
            answered(row)
            draft.again(place, row)
        else:
            still.append(place)
    head.missing = tuple(still)
