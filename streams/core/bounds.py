"""What one output may hold, whatever others chose: cut here, and so the same in every fold.

A topic takes records of 1,048,588 bytes, at least. A handoff beyond the policy's
`dispatch_bytes_max` goes to a person instead; all else that the fold puts out is cut to fit.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import msgspec

from dalsegno.schemas.outputs import JournalEntry, StepChange, Transition, UndoEntry

# Of a sentence, in code points of up to 4 bytes each.
WORDS_CHARS_MAX: Final = 16_384
# Moves of steps in one transition. Up to `CHANGES_SURE` of them fit, however long their names are.
CHANGES_BYTES_MAX: Final = 524_288
CHANGES_SURE: Final = 512
# Two states and an epoch, beside the name and its length.
_CHANGE_BYTES: Final = 16
# Status, numbers and framing of a journal's entry.
_ENTRY_BYTES: Final = 64


def words(text: str) -> str:
    """As much of a sentence as an output shows."""
    return text if len(text) <= WORDS_CHARS_MAX else text[: WORDS_CHARS_MAX - 1] + "…"


def utf8_bytes(text: str) -> int:
    """The length of a text on the wire."""
    return len(text) if text.isascii() else len(text.encode())


def entry_bytes(entry: JournalEntry | UndoEntry) -> int:
    """About what an entry of a journal takes on the wire, rather more than less."""
    return _ENTRY_BYTES + utf8_bytes(entry.effect) + len(entry.key) + len(entry.result)


def fitting(transition: Transition) -> Transition:
    """The transition, cut to what a record takes. What is cut of its changes is counted."""
    changes, detail = transition.changes, words(transition.detail)
    if len(changes) > CHANGES_SURE:
        kept = _changes_that_fit(changes)
        if kept < len(changes):
            told = f"{len(changes) - kept} more steps changed their state"
            changes = changes[:kept]
            detail = f"{told}; {detail}" if detail else told
    return msgspec.structs.replace(
        transition,
        changes=changes,
        reason=words(transition.reason),
        step=words(transition.step),
        actor=words(transition.actor),
        detail=detail,
    )


def _changes_that_fit(changes: tuple[StepChange, ...]) -> int:
    sizes = accumulate(utf8_bytes(change.step) + _CHANGE_BYTES for change in changes)
    return sum(size <= CHANGES_BYTES_MAX for size in sizes)
