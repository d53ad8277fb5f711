"""Record batches whose header names are no UTF-8: read all the same, each record for itself.

The protocol says that a header's name is UTF-8, and brokers do not check it. No client gives the
headers of such a record. Here it is fetched again, and its batch taken apart with lenient names:
bytes that are no UTF-8 come as lone surrogates (`surrogateescape`), which no other name can hold.

Uses private parts of aiokafka: the name `MemoryRecords` in its fetcher, and its decoder of batches
in Python, which slices the bytes of a name and decodes them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords

from dalsegno.streams.engine.security import aiokafka_options
from dalsegno.streams.engine.settings import EngineSettings

Headers = tuple[tuple[str, bytes], ...]

# Base offset, and how many bytes of the batch follow.
_FRAME: Final = struct.Struct(">qi")
_READ_TIMEOUT_S: Final = 5.0


def read_leniently() -> None:
    """Has every consumer of this process read such batches. Once or more often is the same."""
    fetcher.MemoryRecords = RetainedRecords


class LenientHeaders:
    """Headers of records whose names are no UTF-8. Blocking, for a thread without a loop."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._found: dict[tuple[TopicPartition, int], Headers] = {}

    def of(self, place: TopicPartition, offset: int) -> Headers:
        """The record's headers. Raises `KafkaError` or `TimeoutError` while it cannot be read."""
        if (place, offset) not in self._found:
            self._found = asyncio.run(self._read(place, offset))
        return self._found[place, offset]

    async def _read(
        self, place: TopicPartition, offset: int
    ) -> dict[tuple[TopicPartition, int], Headers]:
        """What is fetched together from there on: a stranger's record seldom comes alone."""
        read_leniently()
        client = AIOKafkaConsumer(**aiokafka_options(self._settings), auto_offset_reset="none")
        await client.start()
        try:
            client.assign([place])
            client.seek(place, offset)
            async with asyncio.timeout(_READ_TIMEOUT_S):
                first = await client.getone(place)
            rest = (await client.getmany(place, timeout_ms=0)).get(place, [])
            return {
                (place, record.offset): tuple((n, held or b"") for n, held in record.headers)
                for record in (first, *rest)
            }
        finally:
            await client.stop()


class RetainedRecords(MemoryRecords):  # type: ignore[misc]
    """Fetched batches, with their bytes at hand."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)  # pyright: ignore[reportAbstractUsage]
        self._data = data

    def next_batch(self) -> Any:  # noqa: ANN401 - untyped upstream
        """The next batch. Batches of older formats have no headers."""
        batch = super().next_batch()  # pyright: ignore[reportAbstractUsage]
        return _Batch(batch, self._data) if isinstance(batch, DefaultRecordBatch) else batch


class _Batch:
    """A batch as the client reads it. At a name that it cannot read, it is read anew."""

    __slots__ = ("_batch", "_data")

    def __init__(self, batch: Any, data: bytes) -> None:  # noqa: ANN401 - untyped upstream
        self._batch = batch
        self._data = data

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the batch has
        return getattr(self._batch, name)

    def __next__(self) -> Any:  # noqa: ANN401 - untyped upstream
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._batch
        except UnicodeDecodeError:
            # From its start: the fetcher skips what is below its position.
            yield from _read_again(self._data, self._batch.base_offset)


def _read_again(data: bytes, base_offset: int) -> Iterator[Any]:
    at = 0
    while True:
        offset, size = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + size
        if offset == base_offset:
            break
        at = end
    batch = _DefaultRecordBatchPy(data[at:end])
    batch._maybe_uncompress()
    batch._buffer = _Names(batch._buffer)
    yield from batch


class _Names(bytearray):
    """Bytes whose slices decode whatever they hold."""

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as its base
        found = super().__getitem__(index)
        return _Names(found) if isinstance(found, bytearray) else found

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        """Never raises."""
        return super().decode(encoding, errors)
