"""Keys by which receivers of effects know a repeat: pure functions, the same in every attempt."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

# 160 bits: no two effects meet by chance, and receivers that allow 64 characters take it.
_KEY_CHARS: Final = 40


def recovery_key(run_id: str, step: str) -> str:
    """`<length of the run id>:<run id>/<step>`: the same for every attempt of the step.

    The length in front keeps run "a/b", step "c" apart from run "a", step "b/c".
    """
    return f"{len(run_id)}:{run_id}/{step}"


def effect_key(recovery: str, effect: str, occurrence: int) -> str:
    """The idempotency key of one effect: 40 hexadecimal characters.

    The first 40 of the SHA-256 of `<recovery key> NUL <occurrence in decimal> NUL <effect>` in
    UTF-8, so that any language can derive it from its handoff. `occurrence` counts the step's uses
    of the effect from 0 and tells two genuine calls in a loop apart. Raises `ValueError` if it is
    negative.
    """
    if occurrence < 0:
        raise ValueError(f"occurrence is {occurrence}; it counts from 0")
    text = f"{recovery}\0{occurrence}\0{effect}"
    return sha256(text.encode()).hexdigest()[:_KEY_CHARS]


def effect_mark(step: str, effect: str, occurrence: int) -> bytes:
    """What an ended run knows an effect by: 12 bytes, enough that no two of one run meet."""
    return sha256(f"{step}\0{occurrence}\0{effect}".encode()).digest()[:12]
