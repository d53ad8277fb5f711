"""Values and sentences as a person sees them: as text, without secrets, cut to what fits."""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.blob import text_hook
from dalsegno.streams.core.context_field import Field
from dalsegno.streams.core.context_values import trusted
from dalsegno.streams.core.context_view import View

VALUE_CHARS_MAX: Final = 240
# Packed bytes beyond which a value is not decoded to show its beginning.
_VALUE_BYTES_MAX: Final = 16_384
MASKED: Final = "(secret)"
# Shorter texts of secret fields would blank out every second word.
_SECRET_CHARS_MIN: Final = 4
_SECRET_TEXTS_MAX: Final = 64

_json = msgspec.json.Encoder(order="sorted", enc_hook=text_hook).encode


def value_text(view: View, field: str, secrets: frozenset[str]) -> str:
    """The value of a field as JSON; empty when it is missing."""
    state = view.get(field)
    if state is None:
        return ""
    if field in secrets:
        return MASKED
    size = state.size if isinstance(state, Field) else len(state)
    if size > _VALUE_BYTES_MAX:
        return f"({size} bytes)"
    text = _json(trusted(state.pack() if isinstance(state, Field) else state)).decode()
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"


class Mask:
    """Blanks out of sentences what secret fields hold: a message may quote a value."""

    def __init__(self, view: View, secrets: frozenset[str]) -> None:
        self._texts: list[str] = []
        for field in sorted(secrets):
            packed = view.packed(field) if secrets else None
            if packed is not None and len(packed) <= _VALUE_BYTES_MAX:
                self._collect(trusted(packed))
        self._texts.sort(key=lambda text: (-len(text), text))

    def _collect(self, value: object) -> None:
        left = [value]
        while left and len(self._texts) < _SECRET_TEXTS_MAX:
            item = left.pop()
            if isinstance(item, dict):
                left.extend(item.values())
            elif isinstance(item, list):
                left.extend(item)
            elif isinstance(item, str | int | float) and not isinstance(item, bool):
                text = str(item)
                if len(text) >= _SECRET_CHARS_MIN:
                    self._texts.append(text)

    def __call__(self, text: str) -> str:
        """The sentence without what secret fields hold."""
        for secret in self._texts:
            if secret in text:
                text = text.replace(secret, MASKED)
        return text
