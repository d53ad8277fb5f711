"""One thing to mend before production."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """`ERROR`: a start is refused, or work can be lost. `WARNING`: look before production."""

    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend. `code` is stable, `message` says what and how; `step` is empty for the
    flow's.
    """

    severity: Severity
    code: str
    step: str
    message: str
