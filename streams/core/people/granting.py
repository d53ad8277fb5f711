"""What a person permits a step beyond its plan."""

from __future__ import annotations

import msgspec

from dalsegno.streams.core.people.state import NOT_HANDLED
from dalsegno.streams.core.rows import StepRow


def granted(row: StepRow, epoch: int, intended: int) -> bool:
    """Whether a person permits this attempt to repeat an effect of unknown outcome, by its key.

    Until the step is put to a person again, and only of an effect that was first intended, in epoch
    `intended`, before the person permitted it: of a later one the person knew nothing.
    """
    return row.handled is not None and intended < row.handled.granted <= epoch


def grant_next(row: StepRow) -> None:
    """The attempts from the next one on may."""
    row.handled = msgspec.structs.replace(row.handled or NOT_HANDLED, granted=row.epoch + 1)
