"""A blob store on a clock of its own, and stores that fail as told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dalsegno.schemas.blob import Blob
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.archive.objects import ArchiveError, Objects, ObjectStat, Trouble
from dalsegno.storage.blobs.store import BlobStore

GRACE_MS = 10_000
START_MS = 1_700_000_000_000


class Clock:
    """Milliseconds that move when told."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


class FaultyObjects:
    """Around any other store. `down`: the trouble of every call; `lie`: what becomes of what is
    read; `lose_answers`: of so many puts only the answer is lost; `calls`: names, in order;
    `call_hook`: called before each call.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.down: Trouble | None = None
        self.lie: Callable[[str, bytes], bytes] | None = None
        self.lose_answers = 0
        self.calls: list[str] = []
        self.call_hook: Callable[[], None] = lambda: None

    def _call(self, name: str, key: str) -> None:
        self.calls.append(name)
        self.call_hook()
        if self.down is not None:
            raise ArchiveError(self.down, key, "as the test asked")

    def put(self, key: str, data: bytes) -> None:
        self._call("put", key)
        self.objects.put(key, data)
        if self.lose_answers:
            self.lose_answers -= 1
            raise ArchiveError(Trouble.UNREACHABLE, key, "the answer was lost")

    def replace(self, key: str, data: bytes) -> None:
        self._call("replace", key)
        self.objects.replace(key, data)

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        self._call("get", key)
        found = self.objects.get(key, first, size)
        return found if self.lie is None else self.lie(key, found)

    def stat(self, key: str) -> ObjectStat | None:
        self._call("stat", key)
        return self.objects.stat(key)

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        self._call("list", prefix)
        return self.objects.list(prefix)

    def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
        self._call("delete", keys[0] if keys else "")
        return self.objects.delete(keys)

    def close(self) -> None:
        self.objects.close()


class BlobLab:
    """`memory`: what is stored, whatever the faults in front of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.memory = MemoryObjects(self.clock)
        self.objects = FaultyObjects(self.memory)
        self.store = BlobStore(self.objects, "p", self.clock, GRACE_MS)

    def keys(self) -> list[str]:
        return [stat.key for stat in self.memory.list("")]

    def damage(self, key: str, how: Callable[[bytes], bytes]) -> None:
        """The object changes where it lies; its date stays."""
        data, at_ms = self.memory._objects[key]
        self.memory._objects[key] = (how(data), at_ms)


def flipped(data: bytes) -> bytes:
    """One bit in the middle is another."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def packed(size: int, mark: int = 0) -> tuple[Blob, bytes]:
    """Bytes and what refers to them."""
    data = bytes((mark + i) % 251 for i in range(size))
    return Blob.of(data), data
