"""Objects in memory: for the simulation, and for tests of what stands on the port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dalsegno.storage.archive.objects import ArchiveError, ObjectStat, Trouble


class MemoryObjects:
    """A dictionary that behaves as a store does."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._clock_ms = clock_ms

    def put(self, key: str, data: bytes) -> None:
        """See `Objects`."""
        there = self._objects.get(key)
        if there is not None and there[0] != data:
            raise ArchiveError(Trouble.EXISTS, key, "other bytes have this key")
        if there is None:
            self._objects[key] = (data, self._clock_ms())

    def replace(self, key: str, data: bytes) -> None:
        """See `Objects`."""
        self._objects[key] = (data, self._clock_ms())

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        """See `Objects`."""
        there = self._objects.get(key)
        if there is None:
            raise ArchiveError(Trouble.MISSING, key, "there is no such object")
        found = there[0][first:] if size is None else there[0][first : first + size]
        if size is not None and len(found) != size:
            raise ArchiveError(Trouble.DAMAGED, key, f"{len(found)} of {size} bytes from {first}")
        return found

    def stat(self, key: str) -> ObjectStat | None:
        """See `Objects`."""
        there = self._objects.get(key)
        return None if there is None else ObjectStat(key, len(there[0]), there[1])

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        """See `Objects`."""
        for key in sorted(self._objects):
            if key.startswith(prefix):
                data, at_ms = self._objects[key]
                yield ObjectStat(key, len(data), at_ms)

    def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
        """See `Objects`."""
        for key in keys:
            self._objects.pop(key, None)
        return {}

    def close(self) -> None:
        """Nothing is held."""
