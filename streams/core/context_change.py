"""A change of a context that is not decided yet: adopt it or discard it."""

from __future__ import annotations

from collections.abc import Mapping

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import MergeRule
from dalsegno.streams.core.context_diff import Entry, pack_diff, set_to, shown
from dalsegno.streams.core.context_errors import (
    ContextTooLarge,
    DeltaError,
    WriteRefused,
    pointer,
)
from dalsegno.streams.core.context_field import Field
from dalsegno.streams.core.context_merge import merge
from dalsegno.streams.core.context_ops import Op, Undo, apply_inside, child
from dalsegno.streams.core.context_store import Store
from dalsegno.streams.core.context_values import (
    Path,
    Value,
    list_header,
    pack,
    text_bytes,
    trusted,
)
from dalsegno.streams.core.context_view import View
from dalsegno.streams.core.names import name_fault

_CAT = pack("cat")
_SPL = pack("spl")
_SET = pack("set")
_DEL = pack("del")


class _Deep:
    """Operations inside one field: how to undo them, and their bytes for the changelog."""

    __slots__ = ("field", "ops", "size_before", "undo")

    def __init__(self, field: Field) -> None:
        self.field = field
        self.size_before = field.size
        self.undo = Undo()
        self.ops: list[bytes] = []

    def take_back(self) -> None:
        """Leaves the field as it was."""
        self.field.size = self.size_before
        self.field.touched()
        if self.undo.torn:
            self.field.release()
        else:
            self.undo.run()


class ContextChange(View):
    """What operations make of a store, and the context as it is after them.

    Fields that they replace wait beside the store; large fields that they reach into change in
    place, with a way back. `grown`: bytes that the context gained. `whole`: fields that were set as
    a whole, even to what they were before; nothing of an earlier value is left in them.
    `source`: the packed operations.
    """

    __slots__ = (
        "_allowed", "_deep", "_entries", "_merged", "_merges", "_new", "_policy",
        "_step", "_store", "closed", "grown", "source", "whole",
    )  # fmt: skip

    def __init__(
        self,
        store: Store,
        policy: Policy,
        allowed: frozenset[str] | None,
        step: str,
        merges: Mapping[str, MergeRule],
    ) -> None:
        self._store = store
        self.source = b"\x90"
        self._merged = False
        self._policy = policy
        self._allowed = allowed
        self._step = step
        self._merges = merges
        # Fields with another value than in the store: packed, live, or None for gone.
        self._new: dict[str, bytes | Field | None] = {}
        self._deep: dict[str, _Deep] = {}
        self._entries: list[Entry] = []
        self.grown = 0
        self.closed = False
        self.whole: set[str] = set()

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the fields that have changed, sorted."""
        return tuple(sorted(self._new))

    @property
    def after(self) -> View:
        """The context as the change leaves it; no longer to be asked once the change is closed."""
        return self

    @property
    def size_bytes(self) -> int:
        """Packed bytes of all names and values, as the change leaves them."""
        return self._store.bytes_held + self.grown

    def get(self, name: str) -> bytes | Field | None:
        """The field as the change leaves it."""
        return self._new[name] if name in self._new else self._store.get(name)

    def names(self) -> list[str]:
        """Names of all fields as the change leaves them, sorted."""
        names = set(self._store.names())
        for name, state in self._new.items():
            if state is None:
                names.discard(name)
            else:
                names.add(name)
        return sorted(names)

    def diff(self, secrets: frozenset[str]) -> bytes:
        """What has changed, for a transition; see `context_diff`. Empty bytes for nothing."""
        return pack_diff(self._entries, secrets, self._final) if self._entries else b""

    def operations(self) -> bytes:
        """Packed operations that do the same to an equal context, without anybody's merge rules."""
        if not self._merged:
            return self.source
        parts = [list_header(len(self._new))]
        for name in self._new:
            packed = self.packed(name)
            head = list_header(2) + _DEL if packed is None else list_header(3) + _SET
            parts += (head, list_header(1), pack(name), packed or b"")
        return b"".join(parts)

    def adopt(self) -> None:
        """Makes the change part of the context."""
        assert not self.closed, "the change is closed"
        self.closed = True
        for name, state in self._new.items():
            if state is None:
                self._store.remove(name)
            elif isinstance(state, bytes):
                self._store.put(name, state)
            else:
                self._adopt_deep(name, self._deep[name])

    def _adopt_deep(self, name: str, deep: _Deep) -> None:
        field = deep.field
        if self._store.get(name) is field:
            self._store.append(name, field, deep.ops)
            return
        # A small field, or one that this change set as a whole: it starts with what it is now.
        packed = field.pack()
        field.rebase(packed)
        self._store.put(name, packed, field)

    def discard(self) -> None:
        """Leaves the context as it was before."""
        assert not self.closed, "the change is closed"
        self.closed = True
        for name, deep in self._deep.items():
            if self._store.get(name) is deep.field:
                deep.take_back()
        self._new = {}
        self._entries = []
        self.grown = 0

    def check_size(self) -> None:
        """Raises `ContextTooLarge` when the context as a whole has become too long."""
        size = self._store.bytes_held + self.grown
        if self.grown > 0 and size > self._policy.context_bytes_max:
            raise ContextTooLarge("", "context_bytes_max", size, self._policy.context_bytes_max)

    def put_first(self, name: str, packed: bytes) -> None:
        """A field of the first context."""
        self._check_inline((name,), len(packed))
        self._put(name, packed)

    def apply(self, op: Op) -> None:
        """Applies one operation. Raises `DeltaError`, `WriteRefused`, `ContextTooLarge`."""
        if not op.path:
            self._replace_all(op)
            return
        if len(op.packed) > self._policy.inline_bytes_max:
            self._check_inline(op.path, len(op.packed))
        name = op.path[0]
        if not isinstance(name, str):
            raise DeltaError(pointer(op.path[:1]), "fields of a context have names, not numbers")
        if self._allowed is not None and name not in self._allowed:
            raise WriteRefused(name, self._step)
        rule = self._merges.get(name) if self._step else None
        if rule is not None:
            self._merged = True
            if self.get(name) is None:
                self.whole.add(name)
            self._put(name, merge(rule, self.packed(name), op, self._step))
        elif len(op.path) > 1 or op.kind not in ("set", "del"):
            self._inside(name, op)
        elif op.kind == "set":
            self.whole.add(name)
            self._put(name, op.packed)
        else:
            self._take(name)

    def _check_inline(self, path: Path, size: int) -> None:
        if size > self._policy.inline_bytes_max:
            limit = self._policy.inline_bytes_max
            raise ContextTooLarge(pointer(path), "inline_bytes_max", size, limit)

    def _replace_all(self, op: Op) -> None:
        if op.kind != "set" or not isinstance(op.operand, dict):
            raise DeltaError("", "the root is a map of fields: it can only be set, to a map")
        for name in self.names():
            if name not in op.operand:
                self.apply(Op("del", (name,), None, b""))
        for name, value in op.operand.items():
            packed = pack(value)
            self.whole.add(name)
            if self.packed(name) != packed:
                self.apply(Op("set", (name,), value, packed))

    def _put(self, name: str, packed: bytes) -> None:
        state = self.get(name)
        if state is None:
            if fault := name_fault(name):
                raise DeltaError(pointer((name,)), f"the name of a field {fault}")
            self.grown += text_bytes(name) + len(packed)
            self._entries.append(Entry("added", (name,), set_to(packed)))
        else:
            if (state.pack() if isinstance(state, Field) else state) == packed:
                return
            self.grown += len(packed) - (state.size if isinstance(state, Field) else len(state))
            self._entries.append(Entry("changed", (name,), set_to(packed)))
        self._new[name] = packed

    def _take(self, name: str) -> None:
        state = self.get(name)
        if state is None:
            raise DeltaError(pointer((name,)), "the context has no such field")
        self.grown -= text_bytes(name) + (state.size if isinstance(state, Field) else len(state))
        self._entries.append(Entry("removed", (name,), b""))
        self._new[name] = None

    def _inside(self, name: str, op: Op) -> None:
        deep = self._open(name)
        field = deep.field
        packed_op = op.inside_field()
        effect = apply_inside(field.holder(), op, deep.undo)
        if effect.same:
            return
        field.touched()
        field.size += effect.grown
        self.grown += effect.grown
        deep.ops.append(packed_op)
        self._new[name] = field
        if op.kind == "cat":
            self._check_inline(op.path, effect.whole)
            self._entries.append(Entry("changed", op.path, shown(_CAT, 1, op.packed)))
        elif op.kind == "app":
            assert isinstance(op.operand, list)
            for i, item in enumerate(op.operand, effect.first):
                self._entries.append(Entry("added", (*op.path, i), set_to(pack(item))))
        elif op.kind == "spl":
            arguments = pack(op.place) + pack(op.span) + op.packed
            self._entries.append(Entry("changed", op.path, shown(_SPL, 3, arguments)))
        elif op.kind == "del":
            self._entries.append(Entry("removed", op.path, b""))
        else:
            how = set_to(op.packed)
            self._entries.append(Entry("added" if effect.added else "changed", op.path, how))

    def _open(self, name: str) -> _Deep:
        state = self.get(name)
        if state is None:
            raise DeltaError(pointer((name,)), "the context has no such field")
        deep = self._deep.get(name)
        if deep is not None and deep.field is state:
            return deep
        # A field that was reached into, then set as a whole, and is now reached into again: what
        # happened to the old one is of no use any more, whatever becomes of the change.
        if deep is not None and self._store.get(name) is deep.field:
            deep.take_back()
        field = state if isinstance(state, Field) else Field(state)
        deep = self._deep[name] = _Deep(field)
        return deep

    def _final(self, path: Path) -> bytes | None:
        if not path or not isinstance(path[0], str):
            return None
        state = self.get(path[0])
        if state is None:
            return None
        if len(path) == 1:
            return self.packed(path[0])
        value: Value = state.holder()[0] if isinstance(state, Field) else trusted(state)
        try:
            for i, part in enumerate(path[1:], 1):
                value = child(value, part, path[: i + 1])
        except DeltaError:
            return None
        return pack(value)
