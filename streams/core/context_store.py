"""Where a context keeps its fields, and the parts it has in the changelog.

Small fields (up to `SMALL_BYTES` packed) share pages: a field's page is the CRC-32 of its name
modulo the number of pages, a power of two that doubles when the pages hold more than `PAGE_BYTES`
on average. Large fields have a base and chunks of operations (`context_field`). So a change writes
a bounded number of bytes beside its own, however long the context is.

Parts, by the end of their key:

* `p` + page count (uint16) + page (uint16): a MessagePack map of the small fields, sorted by name.
* `b` + field name: the base of a large field.
* `d` + chunk number (uint32) + field name: `[size of the field after it, op, op, ...]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from sys import intern
from typing import Final
from zlib import crc32

import msgspec

from dalsegno.streams.core.context_field import Chunk, Field
from dalsegno.streams.core.context_values import map_header, pack, text_bytes

SMALL_BYTES: Final = 256
PAGE_BYTES: Final = 512
_PAGES_MAX: Final = 32_768
_ONLY_PAGE: Final = b"p\x00\x01\x00\x00"

_page_decoder = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


class Store:
    """Packed fields by name. `bytes_held`: names and values, packed."""

    __slots__ = ("_dirty", "_large", "_pages", "_small_bytes", "bytes_held")

    def __init__(self) -> None:
        self._pages: list[dict[str, bytes]] = [{}]
        self._large: dict[str, Field] | None = None
        self._small_bytes = 0
        self._dirty: set[bytes] | None = None
        self.bytes_held = 0

    def get(self, name: str) -> bytes | Field | None:
        """The field's packed value, or the large field itself."""
        if self._large is not None and (field := self._large.get(name)) is not None:
            return field
        pages = self._pages
        return pages[0 if len(pages) == 1 else self._page_of(name)].get(name)

    def names(self) -> list[str]:
        """Names of all fields, sorted."""
        large = self._large or {}
        return sorted([*large, *chain.from_iterable(self._pages)])

    def put(self, name: str, packed: bytes, live: Field | None = None) -> None:
        """Gives the field a new value. `live`: a field that already holds it, decoded."""
        large = self._large
        if len(packed) <= SMALL_BYTES:
            if large is not None and name in large:
                self.remove(name)
            self._put_small(name, packed)
            return
        self.remove(name)
        self.bytes_held += text_bytes(name) + len(packed)
        if self._large is None:
            self._large = {}
        self._large[intern(name)] = live if live is not None else Field(packed)
        self._mark(b"b" + name.encode())

    def _put_small(self, name: str, packed: bytes) -> None:
        # Nearly every completed step comes here: calls are written out.
        pages = self._pages
        count = len(pages)
        number = self._page_of(name) if count > 1 else 0
        page = pages[number]
        size = len(packed)
        old = page.get(name)
        if old is None:
            name = intern(name)
            grown = size + len(name)
            self.bytes_held += text_bytes(name) + size
        else:
            grown = size - len(old)
            self.bytes_held += grown
        page[name] = packed
        small = self._small_bytes = self._small_bytes + grown
        if self._dirty is None:
            self._dirty = set()
        self._dirty.add(_ONLY_PAGE if count == 1 else _page_key(count, number))
        if small > PAGE_BYTES * count and count < _PAGES_MAX:
            self._double()

    def remove(self, name: str) -> None:
        """Takes the field away, if it is there."""
        if self._large is not None and (field := self._large.pop(name, None)) is not None:
            self.bytes_held -= text_bytes(name) + field.kept_bytes
            self._mark(b"b" + name.encode())
            self._mark_chunks(name, 0, len(field.chunks))
            if not self._large:
                self._large = None
            return
        page = self._page_of(name)
        packed = self._pages[page].pop(name, None)
        if packed is None:
            return
        self.bytes_held -= text_bytes(name) + len(packed)
        self._small_bytes -= len(name) + len(packed)
        self._mark_page(page)
        if not self._small_bytes:
            # The number of pages is read back from the pages; without one it starts again.
            self._pages = [{}]

    def append(self, name: str, field: Field, ops: list[bytes]) -> None:
        """The large field took operations: adds them to its chunks, or gives it a new base."""
        chunks_before = len(field.chunks)
        self.bytes_held -= field.kept_bytes
        at = field.append(ops)
        self.bytes_held += field.kept_bytes
        if at is not None:
            self._mark_chunks(name, at, len(field.chunks))
            return
        self._mark_chunks(name, 0, chunks_before)
        self._mark(b"b" + name.encode())
        if len(field.base) <= SMALL_BYTES:
            self.put(name, field.base)

    def release(self) -> None:
        """Forgets what is decoded; packed bytes stay."""
        for field in (self._large or {}).values():
            field.release()

    def parts(self) -> list[tuple[bytes, bytes]]:
        """All parts, sorted by key."""
        found: list[tuple[bytes, bytes]] = []
        for key in sorted(self._keys()):
            part = self._part(key)
            assert part is not None
            found.append((key, part))
        return found

    def part_keys(self) -> list[bytes]:
        """Keys of all parts, and of those that have gone since the last `drain_dirty`, sorted."""
        return sorted({*self._keys(), *(self._dirty or ())})

    def drain_dirty(self) -> list[tuple[bytes, bytes | None]]:
        """Parts that changed since the last call, sorted by key; None for one that is gone."""
        if self._dirty is None:
            return []
        drained = [(key, self._part(key)) for key in sorted(self._dirty)]
        self._dirty = None
        return drained

    @classmethod
    def load(cls, parts: Iterable[tuple[bytes, bytes]]) -> Store:
        """Reads back what `parts` gave, in any order."""
        store = cls()
        bases: dict[str, bytes] = {}
        chunks: dict[str, dict[int, Chunk]] = {}
        pages: list[bytes] = []
        count = 1
        for key, part in parts:
            kind = key[:1]
            if kind == b"p":
                count = int.from_bytes(key[1:3], "big")
                pages.append(part)
            elif kind == b"b":
                bases[key[1:].decode()] = part
            elif kind == b"d":
                number = int.from_bytes(key[1:5], "big")
                chunks.setdefault(key[5:].decode(), {})[number] = Chunk.unpack(part)
            else:
                raise ValueError(f"not a part of a context: {key!r}")
        store._pages = [{} for _ in range(count)]
        for part in pages:
            for name, raw in _page_decoder.decode(part).items():
                store.put(name, bytes(raw))
        for name, base in sorted(bases.items()):
            numbered = chunks.pop(name, {})
            field = Field(base, [numbered[i] for i in range(len(numbered))])
            store.put(name, base, field)
            store.bytes_held += field.size - len(base)
        if chunks:
            raise ValueError(f"operations without a base: {sorted(chunks)}")
        store._dirty = None
        return store

    def _page_of(self, name: str) -> int:
        count = len(self._pages)
        return crc32(name.encode()) & (count - 1) if count > 1 else 0

    def _double(self) -> None:
        old = self._pages
        for page in range(len(old)):
            self._mark_page(page)
        self._pages = [{} for _ in range(2 * len(old))]
        for fields in old:
            for name, packed in fields.items():
                self._pages[self._page_of(name)][name] = packed
        for page in range(len(self._pages)):
            self._mark_page(page)

    def _mark(self, key: bytes) -> None:
        if self._dirty is None:
            self._dirty = set()
        self._dirty.add(key)

    def _mark_page(self, page: int) -> None:
        self._mark(_page_key(len(self._pages), page))

    def _mark_chunks(self, name: str, first: int, end: int) -> None:
        for number in range(first, end):
            self._mark(_chunk_key(name, number))

    def _keys(self) -> Iterator[bytes]:
        count = len(self._pages)
        for number, page in enumerate(self._pages):
            if page:
                yield _page_key(count, number)
        for name, field in (self._large or {}).items():
            yield b"b" + name.encode()
            for number in range(len(field.chunks)):
                yield _chunk_key(name, number)

    def _part(self, key: bytes) -> bytes | None:
        kind = key[:1]
        if kind == b"p":
            count, page = int.from_bytes(key[1:3], "big"), int.from_bytes(key[3:5], "big")
            if count != len(self._pages) or not self._pages[page]:
                return None
            fields = self._pages[page]
            parts = [map_header(len(fields))]
            for name in sorted(fields):
                parts += (pack(name), fields[name])
            return b"".join(parts)
        name = (key[1:] if kind == b"b" else key[5:]).decode()
        field = (self._large or {}).get(name)
        if field is None:
            return None
        if kind == b"b":
            return field.base
        number = int.from_bytes(key[1:5], "big")
        return field.chunks[number].pack() if number < len(field.chunks) else None


def _page_key(count: int, page: int) -> bytes:
    if count == 1:
        return _ONLY_PAGE
    return b"p" + count.to_bytes(2, "big") + page.to_bytes(2, "big")


def _chunk_key(name: str, number: int) -> bytes:
    return b"d" + number.to_bytes(4, "big") + name.encode()
