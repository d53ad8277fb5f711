"""What can go wrong with a store, by what the caller has to do about it."""

from __future__ import annotations

from dalsegno.streams.core.warm import WarmLost


class StoreError(Exception):
    """Base of all."""


class StoreBusyError(StoreError):
    """A write would have to wait for the disk: nothing was written, try again in a moment."""


class StoreFullError(StoreError):
    """A write failed (disk full, I/O): nothing was written, what was there can still be read."""


class StoreLostError(StoreError, WarmLost):
    """What is stored is damaged, gone or not ours: throw it away and restore from the changelog."""
