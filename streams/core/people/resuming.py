"""A quarantined run goes on: its workers were told to stop, so their attempts are over."""

from __future__ import annotations

from typing import Final

from dalsegno.streams.core.attempts import close, uncharged
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.fired import Fired
from dalsegno.streams.core.step_table import HELD, READY

_QUARANTINED: Final = "quarantined"


def give_again(draft: Draft) -> Fired:
    """Every attempt that the engine had given out is followed by the next one, uncharged.

    A service's own attempt stays: nobody told it to stop, and its reports are taken.
    """
    for place, old in enumerate(draft.run.rows):
        row = draft.rows.get(place, old)
        if row.flight is not None and row.epoch:
            row = draft.row(place)
            close(row, _QUARANTINED)
            uncharged(draft, place, row)
        elif row.state is HELD:
            # It left its line when the run was put aside, and what held it may hold it no more.
            draft.move(place, draft.row(place), READY)
    return Fired("resumed")
