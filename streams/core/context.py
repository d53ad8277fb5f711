"""The context of a run: a document of named fields that changes by operations, wholly or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import MergeRule
from dalsegno.streams.core.context_change import ContextChange
from dalsegno.streams.core.context_diff import Entry, pack_diff, set_to
from dalsegno.streams.core.context_errors import (
    ContextError,
    ContextTooLarge,
    DeltaError,
    MissingFields,
    WriteRefused,
)
from dalsegno.streams.core.context_field import Field
from dalsegno.streams.core.context_ops import parse_ops
from dalsegno.streams.core.context_store import Store
from dalsegno.streams.core.context_values import pack, unpack
from dalsegno.streams.core.context_view import View

__all__ = [
    "Context",
    "ContextChange",
    "ContextError",
    "ContextTooLarge",
    "DeltaError",
    "MissingFields",
    "WriteRefused",
]

_NO_MERGES: Final[Mapping[str, MergeRule]] = MappingProxyType({})


class Context(View):
    """Fields by name, held packed. Values go in and out as packed bytes: nothing live is shared.

    `apply` gives a change, which answers for the state after it; the context itself answers for the
    state before. A change that is neither adopted nor discarded when the context is next asked or
    changed is taken as abandoned: it is discarded then.
    """

    __slots__ = ("_open", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: ContextChange | None = None

    @classmethod
    def empty(cls) -> Context:
        """A context without fields."""
        return cls(Store())

    @classmethod
    def create(cls, data: bytes, policy: Policy) -> Context:
        """The first context of a run: `data` is a MessagePack map from field name to value.

        Raises `DeltaError`, `ContextTooLarge`.
        """
        context = cls.empty()
        fields = unpack(data)
        if not isinstance(fields, dict):
            raise DeltaError("", "the first context is no map of fields")
        change = ContextChange(context._store, policy, None, "", _NO_MERGES)
        for name, value in fields.items():
            change.put_first(name, pack(value))
        change.check_size()
        change.adopt()
        return context

    @classmethod
    def load(cls, parts: Iterable[tuple[bytes, bytes]]) -> Context:
        """Reads back what `parts` gave, in any order. Raises `ValueError` if that cannot be."""
        return cls(Store.load(parts))

    def apply(
        self,
        ops: bytes,
        policy: Policy,
        *,
        allowed: frozenset[str] | None = None,
        step: str = "",
        merges: Mapping[str, MergeRule] = _NO_MERGES,
    ) -> ContextChange:
        """Applies a MessagePack array of operations in order, all of them or none.

        `allowed`: fields that may change, None for all (a person's edit). `step`: who writes; merge
        rules hold for steps only. Raises `DeltaError`, `WriteRefused`, `ContextTooLarge`, and then
        nothing has changed.
        """
        self._settle()
        parsed = parse_ops(ops)
        change = ContextChange(self._store, policy, allowed, step, merges)
        change.source = ops
        try:
            for op in parsed:
                change.apply(op)
            change.check_size()
        except BaseException:
            # Whatever it was, what operations did in place must not stay.
            change.discard()
            raise
        self._open = change
        return change

    def adopt(self, change: ContextChange) -> None:
        """The same as `change.adopt()`."""
        assert change is self._open, "not the change that is open"
        change.adopt()
        self._open = None

    def get(self, name: str) -> bytes | Field | None:
        """The field's packed value, the large field itself, or None."""
        self._settle()
        return self._store.get(name)

    def names(self) -> list[str]:
        """Names of all fields, sorted."""
        self._settle()
        return self._store.names()

    def first_diff(self, secrets: frozenset[str]) -> bytes:
        """The diff from nothing to this context, as `ContextChange.diff` gives it."""
        entries = [
            Entry("added", (name,), set_to(self.packed(name) or b"")) for name in self.names()
        ]
        return pack_diff(entries, secrets, lambda _: None)

    @property
    def size_bytes(self) -> int:
        """Packed bytes of all names and values."""
        return self._store.bytes_held

    def parts(self) -> list[tuple[bytes, bytes]]:
        """All parts for the changelog, sorted by (the end of) their key; see `context_store`."""
        self._settle()
        return self._store.parts()

    def part_keys(self) -> list[bytes]:
        """Keys of all parts, and of those that have gone since the last `drain_dirty`, sorted."""
        self._settle()
        return self._store.part_keys()

    def drain_dirty(self) -> list[tuple[bytes, bytes | None]]:
        """Parts that changed since the last call, sorted by key; None for one that is gone."""
        self._settle()
        return self._store.drain_dirty()

    def release(self) -> None:
        """Forgets decoded values to free memory. Changes nothing that can be asked for."""
        self._settle()
        self._store.release()

    def _settle(self) -> None:
        if self._open is not None:
            if not self._open.closed:
                self._open.discard()
            self._open = None
