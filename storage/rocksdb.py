"""A table in RocksDB: one database per partition, their memory bounded together.

Its write-ahead log is off: the changelog is one. After the end of the process a database is as it
was at its last flush, whole, and is caught up from there. For the same reason an open database is
never closed and opened again under a partition that goes on: it would fall back behind it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import rocksdict

from dalsegno.storage.errors import (
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreLostError,
)
from dalsegno.storage.ports import TableStat

T = TypeVar("T")

_WRITE_BUFFER_BYTES: Final = 16 << 20
_BLOCK_BYTES: Final = 8 << 10
_FILTER_BITS: Final = 10
_OPEN_FILES_MAX: Final = 128
_MIB: Final = 1 << 20


class RocksMemory:
    """What all databases of a process share: block cache and write buffers, in bytes."""

    def __init__(self, cache_bytes: int, buffer_bytes: int) -> None:
        self.cache = rocksdict.Cache(cache_bytes)
        # A full buffer is written out; no write waits for that inside the database.
        self.buffers = rocksdict.WriteBufferManager(buffer_bytes, allow_stall=False)

    def options(self) -> rocksdict.Options:
        """For every open, also of a database that exists: none of it is read back from there."""
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(self.cache)
        blocks.set_block_size(_BLOCK_BYTES)
        blocks.set_bloom_filter(_FILTER_BITS, block_based=False)
        # Filters and indexes count towards the cache, so that it bounds everything.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(create_if_missing=True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_manager(self.buffers)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_max_open_files(_OPEN_FILES_MAX)
        options.set_max_background_jobs(2)
        options.set_paranoid_checks(True)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(_MIB)
        # It names the first and last keys of files that are gone, until a new one is begun.
        options.set_max_manifest_file_size(_MIB)
        options.set_stats_dump_period_sec(0)
        return options


class RocksTable:
    """See `Table`. Reads of many keys leave Python's lock; writes and scans hold it, so they are
    kept short. A write that would have to wait for the disk is refused instead.
    """

    def __init__(self, folder: Path, memory: RocksMemory) -> None:
        """Opens or makes the database. Raises `StoreLostError`, `StoreFullError`."""
        self._folder = folder
        self._process = os.getpid()
        self._idle = threading.Condition()
        self._users = 0
        self._open = True
        try:
            self._db = rocksdict.Rdict(str(folder), memory.options())
        except Exception as error:
            raise _typed(error, writing=False) from error
        written = rocksdict.WriteOptions()
        # The stub takes this property for a method.
        written.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue]
        written.no_slowdown = True
        self._db.set_write_options(written)
        self._written = written

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys, read together without Python's lock."""
        return self._call(lambda: self._db.get(list(keys)) if keys else [], writing=False)

    def scan(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Entries from `first` on and before `end`, at most `limit`."""

        def walk() -> list[tuple[bytes, bytes]]:
            found: list[tuple[bytes, bytes]] = []
            entries = self._db.iter()
            entries.seek(first)
            while len(found) < limit and entries.valid():
                key = entries.key()
                if key >= end:
                    break
                found.append((key, entries.value()))
                entries.next()
            entries.status()
            return found

        return self._call(walk, writing=False)

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """All of the changes (None: delete), or none of them."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self._call(lambda: self._db.write(batch, self._written), writing=True)

    def flush(self) -> None:
        """What was written outlives the process now. Leaves Python's lock."""
        if not (self._folder / "CURRENT").exists():
            raise StoreLostError(f"{self._folder} is gone")
        self._call(lambda: self._db.flush(wait=True), writing=True)

    def compact(self) -> None:
        """What was deleted or replaced is in no file any more. Leaves Python's lock; some seconds
        for each 100 MB.
        """
        everything = rocksdict.CompactOptions()
        everything.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        self.flush()
        self._call(lambda: self._db.compact_range(None, None, everything), writing=True)

    def stat(self) -> TableStat:
        """As the port says."""

        def ask() -> TableStat:
            number = self._db.property_int_value
            return TableStat(
                disk_bytes=number("rocksdb.total-sst-files-size") or 0,
                stalled=bool(number("rocksdb.is-write-stopped"))
                or bool(number("rocksdb.actual-delayed-write-rate")),
            )

        return self._call(ask, writing=False)

    def close(self) -> None:
        """Flush it, and let go of it either way. Raises `StoreError` if it was not flushed."""
        with self._idle:
            if not self._open:
                return
            self._open = False
            self._idle.wait_for(lambda: not self._users)
        if self._process != os.getpid():
            return
        try:
            self._db.close()
        except Exception as error:
            raise _typed(error, writing=True) from error

    def _call(self, work: Callable[[], T], *, writing: bool) -> T:
        if self._process != os.getpid():
            # What a forked process writes would be lost without a word.
            raise StoreLostError(f"{self._folder} was opened by process {self._process}")
        with self._idle:
            if not self._open:
                raise StoreLostError(f"{self._folder} is closed")
            self._users += 1
        try:
            return work()
        except Exception as error:
            raise _typed(error, writing=writing) from error
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()


def _typed(error: Exception, *, writing: bool) -> StoreError:
    """rocksdict raises plain `Exception`: only what it says tells them apart."""
    said = str(error)
    if writing and ("Incomplete" in said or "incomplete" in said or "Write stall" in said):
        return StoreBusyError(said)
    gone = "No such file" in said or isinstance(error, rocksdict.DbClosedError)
    if "Corruption" not in said and not gone and (writing or "No space" in said):
        return StoreFullError(said)
    return StoreLostError(said)
