"""Questions about the fields of a context, as they are or as a change would leave them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from dalsegno.streams.core.context_errors import MissingFields
from dalsegno.streams.core.context_field import Field
from dalsegno.streams.core.context_values import list_header, map_header, pack


class View:
    """Whoever has `get` and `names` can answer."""

    __slots__ = ()

    def get(self, name: str) -> bytes | Field | None:
        """The field's packed value, the large field itself, or None."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """Names of all fields, sorted."""
        raise NotImplementedError

    def packed(self, name: str) -> bytes | None:
        """The packed value of one field, or None."""
        state = self.get(name)
        return state.pack() if isinstance(state, Field) else state

    def missing(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Those of `fields` that are not there, in their order."""
        get = self.get
        absent: tuple[str, ...] = ()
        for field in fields:
            if get(field) is None:
                absent = (*absent, field)
        return absent

    def pack(self, fields: Iterable[str] | None = None) -> bytes:
        """A MessagePack map of these fields in this order; of all, sorted by name, for None.

        Raises `MissingFields` when one is not there.
        """
        names = self.names() if fields is None else list(dict.fromkeys(fields))
        parts = [map_header(len(names))]
        for name in names:
            state = self.get(name)
            if state is None:
                raise MissingFields(self.missing(names))
            parts.append(pack(name))
            parts.append(state.pack() if isinstance(state, Field) else state)
        return b"".join(parts)

    def values_digest(self, fields: Iterable[str]) -> bytes:
        """SHA-256 of what these fields hold and of which are missing, whatever their order."""
        names = sorted(set(fields))
        absent = self.missing(names)
        there = [name for name in names if name not in absent]
        return sha256(list_header(2) + self.pack(there) + pack(absent)).digest()
