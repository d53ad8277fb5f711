"""A large field of a context: packed once, and from then on the operations on it.

`base` is the field's packed value at some point, `chunks` the operations since, oldest first. When
the operations have become longer than the base, the field gets a new base: so what is written for a
change is in proportion to the change, not to the field, and what is read back is at most twice the
field. Both points are functions of the operations alone; two folds agree on them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.streams.core.context_ops import Undo, apply_inside, parse_ops
from dalsegno.streams.core.context_values import Value, list_header, pack, trusted

# A chunk takes further operations up to this size: small ones share a record of the changelog.
CHUNK_BYTES: Final = 512


class Chunk:
    """`count` operations in `ops` (packed, one behind the other); the field's size after them."""

    __slots__ = ("count", "ops", "size")

    def __init__(self, count: int, ops: bytes, size: int) -> None:
        self.count = count
        self.ops = ops
        self.size = size

    def pack(self) -> bytes:
        """`[size, op, op, ...]`"""
        return list_header(self.count + 1) + pack(self.size) + self.ops

    @classmethod
    def unpack(cls, data: bytes) -> Chunk:
        size, *ops = _chunk_decoder.decode(data)
        return cls(
            len(ops), b"".join(bytes(op) for op in ops), msgspec.msgpack.decode(size, type=int)
        )


_chunk_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])


class Field:
    """`size` is the packed size of the value as it is now, changes that are still open included."""

    __slots__ = ("_holder", "_packed", "base", "chunks", "delta_bytes", "size")

    def __init__(self, base: bytes, chunks: list[Chunk] | None = None) -> None:
        self.base = base
        self.chunks = chunks or []
        self.delta_bytes = sum(len(chunk.ops) for chunk in self.chunks)
        self.size = self.chunks[-1].size if self.chunks else len(base)
        self._holder: list[Value] | None = None
        self._packed: bytes | None = None

    @property
    def kept_bytes(self) -> int:
        """Packed size of the value that base and chunks stand for: open changes left out."""
        return self.chunks[-1].size if self.chunks else len(self.base)

    def holder(self) -> list[Value]:
        """A list with the live value in its only place; decoded when first asked for."""
        if self._holder is None:
            holder = [trusted(self.base)]
            undo = Undo()
            for chunk in self.chunks:
                for op in parse_ops(list_header(chunk.count) + chunk.ops):
                    apply_inside(holder, msgspec.structs.replace(op, path=("", *op.path)), undo)
            self._holder = holder
        return self._holder

    def pack(self) -> bytes:
        """The value's packed bytes."""
        if self._packed is None:
            if not self.chunks and self._holder is None:
                return self.base
            self._packed = pack(self.holder()[0])
        return self._packed

    def touched(self) -> None:
        """The live value has changed."""
        self._packed = None

    def release(self) -> None:
        """Forgets the live value. Only base and chunks count."""
        self._holder = None
        self._packed = None

    def rebase(self, base: bytes) -> None:
        """Starts again from `base`, the packed bytes of the live value."""
        self.base = base
        self.chunks = []
        self.delta_bytes = 0
        self.size = len(base)

    def append(self, ops: list[bytes]) -> int | None:
        """Adds operations that the live value already has. Returns the first chunk that changed.

        None says that the field has a new base and no chunk any more.
        """
        added = b"".join(ops)
        self.delta_bytes += len(added)
        if self.delta_bytes > len(self.base):
            self.rebase(self.pack())
            return None
        if self.chunks and len(self.chunks[-1].ops) + len(added) <= CHUNK_BYTES:
            last = self.chunks[-1]
            self.chunks[-1] = Chunk(last.count + len(ops), last.ops + added, self.size)
        else:
            self.chunks.append(Chunk(len(ops), added, self.size))
        return len(self.chunks) - 1
