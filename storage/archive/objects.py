"""What the archive needs of an object store, and what can go wrong with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec


class Trouble(StrEnum):
    """Kinds of failures; each is counted."""

    UNREACHABLE = "unreachable"
    """Nobody answers, or the connection broke."""
    SLOW = "slow"
    """No answer within the time that a request has."""
    BUSY = "busy"
    """The store asks for fewer requests, or has an error of its own."""
    FULL = "full"
    """It has no room, or the quota is used up."""
    DENIED = "denied"
    """Wrong credentials, or rights that are missing."""
    CONFIGURED = "configured"
    """The bucket or the endpoint is not what the settings say."""
    EXISTS = "exists"
    """Another object has this key."""
    MISSING = "missing"
    """There is no such object."""
    DAMAGED = "damaged"
    """What came back is not what was put."""


PASSING: Final = frozenset({Trouble.UNREACHABLE, Trouble.SLOW, Trouble.BUSY, Trouble.FULL})
"""Troubles that may pass by themselves: what was to be done is tried again later."""


class ArchiveError(Exception):
    """A request that failed, after its retries. `key` is the object's, or the bucket's name."""

    def __init__(self, trouble: Trouble, key: str, detail: str) -> None:
        super().__init__(f"archive: {key!a}: {trouble}: {detail}")
        self.trouble = trouble
        self.key = key
        self.detail = detail

    @property
    def passing(self) -> bool:
        """Whether it may pass by itself."""
        return self.trouble in PASSING


class ObjectStat(msgspec.Struct, frozen=True, gc=False):
    """An object as a listing shows it. `at_ms`: when it was put, by the store's clock."""

    key: str
    size: int
    at_ms: int


class Objects(Protocol):
    """Whole objects by key. Calls block; any thread may call. All raise `ArchiveError`."""

    def put(self, key: str, data: bytes) -> None:
        """Put an object that is not there. The same bytes again are no error: the answer to an
        earlier try may have been lost. Other bytes are `EXISTS`.
        """

    def replace(self, key: str, data: bytes) -> None:
        """Put an object, whatever has this key: at no time there is none."""

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        """`size` bytes from `first` on, or all from there on. Fewer bytes than asked for are
        `DAMAGED`; no object is `MISSING`.
        """

    def stat(self, key: str) -> ObjectStat | None:
        """The object, or None."""

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        """Objects whose keys begin so, in the order of their keys."""

    def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
        """Delete what is there of the keys; what could not be deleted, by key."""

    def close(self) -> None:
        """Let go of connections."""
