"""What a name of a step, a field or a service may look like."""

from __future__ import annotations

from typing import Final

NAME_CHARS_MAX: Final = 128
# What others choose and the state keeps as it is: addresses, ids of requests, names of workers.
ID_CHARS_MAX: Final = 256
# What the state keeps of a sentence; the transition or the escalation has more of it.
DETAIL_CHARS_MAX: Final = 512
_DELETE: Final = "\x7f"


def name_fault(name: str) -> str:
    """Why `name` cannot be used, or an empty text.

    1 to 128 characters, no control characters (they end up in keys, logs and terminals), no space
    at either end and no lone surrogate. Everything else goes: names come from other systems.
    """
    if not name:
        return "is empty"
    if len(name) > NAME_CHARS_MAX:
        return f"has {len(name)} characters, {NAME_CHARS_MAX} are allowed"
    if name[0] == " " or name[-1] == " ":
        return "has a space at an end"
    # Plain ASCII letters, digits and punctuation, which nearly every name is, need no closer look.
    if name.isascii() and name.isprintable():
        return ""
    for char in name:
        if char < " " or char == _DELETE or "\x80" <= char <= "\x9f":
            return f"has the control character {char!a}"
        if "\ud800" <= char <= "\udfff":
            return f"has the lone surrogate {char!a}"
    return ""
