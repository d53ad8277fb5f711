"""Values as JSON that every parser takes: NaN and infinities as text, bytes as base64."""

from __future__ import annotations

import base64
import math

import msgspec

from dalsegno.schemas.blob import text_hook

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def jsonable(value: object) -> Json:
    """A plain value, of structs, maps, lists, numbers, text, times, bytes and blob references."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True, enc_hook=text_hook)
    return _plain(plain)


def _plain(value: object) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def dumps(value: object) -> bytes:
    """JSON text."""
    return msgspec.json.encode(jsonable(value))
