"""Where a restore puts what it reads: into memory, or into the local database as it comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from dalsegno.storage.errors import StoreBusyError, StoreError, StoreFullError, StoreLostError
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.engine.warm_tier import WarmTier, now_ms

log = structlog.get_logger(__name__)

UNPACKED: Final = 4
"""What a run takes in memory for each byte of its parts, as `benchmarks tiers` has it."""
_BUSY_S: Final = 0.02
Changes = Mapping[bytes, bytes | None]


class Sink(Protocol):
    """Takes the changelog in its order. Called by one thread."""

    def begin(self, log_start: int, log_end: int) -> int:
        """The offset to read on from."""

    def take(self, changes: Changes, position: int) -> None:
        """All records up to this offset: the last of each key, None for deleted."""

    def finish(self, position: int) -> None:
        """That was all."""


class PartsSink:
    """All parts in memory, at most `bytes_max` of them. Raises `StoreFullError`."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self.parts: dict[bytes, bytes] = {}
        self._bytes_max = bytes_max
        self._bytes = 0

    @property
    def empty(self) -> bool:
        """Whether there is no checkpoint."""
        return not self.parts

    def begin(self, log_start: int, log_end: int) -> int:  # noqa: ARG002 - the port's shape
        """From the start."""
        return log_start

    def take(self, changes: Changes, position: int) -> None:  # noqa: ARG002 - the port's shape
        """Keep what is there."""
        for key, value in changes.items():
            old = self.parts.pop(key, None)
            self._bytes -= 0 if old is None else len(key) + len(old)
            if value is not None:
                self.parts[key] = value
                self._bytes += len(key) + len(value)
        if self._bytes_max is not None and self._bytes > self._bytes_max:
            raise StoreFullError(
                f"no database can be made, and {self._bytes} bytes of parts do not fit in memory: "
                "make room on the disk of DALSEGNO_DATA_DIR"
            )

    def sizes(self) -> dict[bytes, int]:
        """Of the parts, by key."""
        return {key: len(key) + len(value) for key, value in self.parts.items()}

    def finish(self, position: int) -> None:
        """Nothing to do."""


class StoreSink:
    """The partition's store. Raises `StoreError`: then `give_up`, and another sink."""

    def __init__(self, tier: WarmTier, partition: int) -> None:
        self._tier = tier
        self._partition = partition
        self._began_ms = 0
        self._caught_up_ms = 0
        self._lock = threading.Lock()
        self._given_up = False
        self.store: WarmStore | None = None

    @property
    def opened(self) -> WarmStore:
        """The store, once it is begun."""
        assert self.store is not None, "begun"
        return self.store

    @property
    def empty(self) -> bool:
        """Whether there is no checkpoint."""
        return not self.opened.others()

    def begin(self, log_start: int, log_end: int) -> int:
        """From where the store is, if it can be vouched for."""
        self._began_ms = now_ms()
        with self._lock:  # who gives it up waits, so that nothing is opened behind its back
            if self._given_up:
                raise StoreError(f"partition {self._partition}: given up before it was opened")
            store = self.store = self._tier.open(self._partition)
        place = store.place
        if place is None:
            return log_start
        reason = self._doubt(place, log_start, log_end)
        if reason:
            why = f"it is at {place.position}, the changelog holds {log_start} to {log_end}"
            with self._lock:
                if self._given_up:
                    raise StoreError(f"partition {self._partition}: given up while it was opened")
                self.store = self._tier.wipe(self._partition, store, reason, why)
            return log_start
        self._caught_up_ms = place.caught_up_ms
        return place.position

    def _doubt(self, place: Place, log_start: int, log_end: int) -> str:
        if place.position > log_end:
            return "ahead"
        if place.position < log_start:
            return "behind"
        if not self._tier.too_old_ms() <= place.caught_up_ms <= self._began_ms:
            return "too_old"
        return ""

    def take(self, changes: Changes, position: int) -> None:
        """Put it in. What it was caught up at stays what it was until all is in."""
        self._put(changes, Place(position, self._caught_up_ms))

    def finish(self, position: int) -> None:
        """Caught up, as of when the restore began: our claim was the end then."""
        self._put({}, Place(position, self._began_ms))

    def _put(self, changes: Changes, place: Place) -> None:
        store = self.opened
        while True:
            try:
                return store.put(changes, place)
            except StoreBusyError:
                time.sleep(_BUSY_S)  # on the restore's own thread

    def give_up(self, error: StoreError | None) -> None:
        """Let go of the store, for good. Damaged, it is thrown away. From any thread; blocks while
        it is being opened.
        """
        with self._lock:
            self._given_up = True
            store, self.store = self.store, None
        if store is not None:
            log.warning("store given up", partition=self._partition, error=str(error))
            condemned = isinstance(error, StoreLostError)
            self._tier.close_store(self._partition, store, condemned=condemned)
