"""A worker gives back a handoff that it has not started."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.events import FailureType, StepReleased
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.attempts import close, judge, uncharged
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.escalating import Failure, ask
from dalsegno.streams.core.moment import Ruling
from dalsegno.streams.core.rows import NO_PAST
from dalsegno.streams.core.step_table import StepInput

VERSION_MISMATCH: Final = "version_mismatch"
"""The code of a worker that cannot read the context, since it is of another schema version."""
# With the waits in between these take about ten minutes: longer than workers of an old and a
# new release stand side by side, in most places.
MISMATCHES_MAX: Final = 20
_ERROR: Final = "VersionMismatchError"


def step_released(draft: Draft, event: StepReleased) -> Ruling:
    """The next epoch follows, uncharged: another worker may have it.

    When nobody in a row could read the context, a person is asked.
    """
    place = judge(draft, event, StepInput.RELEASED)
    if not isinstance(place, int):
        return place
    row = draft.row(place)
    close(row, StepInput.RELEASED)
    detail = event.detail or event.reason
    if event.reason == VERSION_MISMATCH:
        past = row.past or NO_PAST
        row.past = msgspec.structs.replace(past, mismatches=past.mismatches + 1)
        if row.past.mismatches >= MISMATCHES_MAX:
            row.past = msgspec.structs.replace(row.past, mismatches=0)
            failure = Failure(type=FailureType.INVALID, error_class=_ERROR, message=detail)
            ask(draft, place, row, reason=VERSION_MISMATCH, detail=detail, failure=failure)
            return Ruling(Outcome.APPLIED, event.reason, detail)
    uncharged(draft, place, row)
    return Ruling(Outcome.APPLIED, detail=detail)
