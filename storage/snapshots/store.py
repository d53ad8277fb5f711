"""Where a partition's snapshot chains are: beside its runs, in the same table.

| key | value |
|---|---|
| `"k" run 00 version` | the link that ends with this run version (uint64 big-endian) |

A link needs no check sum of its own here: it has a digest, and names its run. A run's links go in
the very write by which the run is no longer live, so none is ever left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from dalsegno.storage.ports import Table

LINK: Final = b"k"
_VERSION: Final = Struct(">Q")
_PAGE: Final = 64

Scan = Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]]


def link_key(run_id: str, run_version: int) -> bytes:
    """Key of a link: a run's links sort by version."""
    return _first(run_id.encode()) + _VERSION.pack(run_version)


def _first(run: bytes) -> bytes:
    return LINK + run + b"\0"


def entries(scan: Scan, run: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and links of a run, oldest first."""
    found: list[tuple[bytes, bytes]] = []
    first, end = _first(run), LINK + run + b"\1"
    while page := scan(first, end, _PAGE):
        found += page
        first = page[-1][0] + b"\0"
    return found


class ChainStore:
    """The chains of one partition. One thread writes; any thread may read."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def links(self, run_id: str) -> dict[int, bytes]:
        """A run's links by the version that they end with, oldest first. Raises `StoreLostError`.

        They may be damaged: `restore` verifies them.
        """
        run = run_id.encode()
        start = len(_first(run))
        return {
            _VERSION.unpack_from(key, start)[0]: link
            for key, link in entries(self._table.scan, run)
        }

    def write(self, changes: Mapping[tuple[str, int], bytes | None]) -> None:
        """Links by run and version, None for those to be deleted: all of them, or none.

        Raises `StoreBusyError`, `StoreFullError`, `StoreLostError`.
        """
        if changes:
            self._table.write({link_key(*at): link for at, link in changes.items()})
