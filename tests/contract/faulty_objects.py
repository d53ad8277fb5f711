"""An object store that misbehaves as told, around any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from dalsegno.storage.archive.objects import ArchiveError, Objects, ObjectStat, Trouble


class Fault(StrEnum):
    """What becomes of one request."""

    SLOW = "slow"
    """It is done after `waits` was called."""
    FAIL = "fail"
    """It is not done, and says so."""
    LOST_ANSWER = "lost answer"
    """It is done, and says that it failed."""
    LIE = "lie"
    """It works on other bytes: what is stored, or what comes back, differs in one bit."""
    TRUNCATE = "truncate"
    """It works on half: half of the bytes, or of a listing."""
    REPEAT = "repeat"
    """It is done twice."""


Decide = Callable[[str, str], Fault | None]
"""The fault of a request, by its name (`put`, `get`, …) and its key; None for none."""


class FaultyObjects:
    """See `Objects`. `decide` is asked for each request; `waits` is called by slow ones."""

    def __init__(
        self,
        objects: Objects,
        decide: Decide,
        *,
        trouble: Trouble = Trouble.UNREACHABLE,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self.objects = objects
        self.decide = decide
        self.trouble = trouble
        self.waits = waits

    def put(self, key: str, data: bytes) -> None:
        """See `Objects`."""
        self._write("put", key, data, self.objects.put)

    def replace(self, key: str, data: bytes) -> None:
        """See `Objects`."""
        self._write("replace", key, data, self.objects.replace)

    def _write(self, name: str, key: str, data: bytes, write: Callable[[str, bytes], None]) -> None:
        fault = self._begin(name, key)
        write(key, _bent(fault, data))
        if fault is Fault.REPEAT:
            write(key, data)
        if fault is Fault.LOST_ANSWER:
            raise self._error(key)

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        """See `Objects`."""
        fault = self._begin("get", key)
        found = self.objects.get(key, first, size)
        if fault is Fault.LOST_ANSWER:
            raise self._error(key)
        if fault is Fault.TRUNCATE and size is not None:
            raise ArchiveError(Trouble.DAMAGED, key, "half of what was asked for")
        # Not at the bit where a lie was stored: two lies would be the truth.
        return _bent(fault, found, at=len(found) // 4)

    def stat(self, key: str) -> ObjectStat | None:
        """See `Objects`."""
        fault = self._begin("stat", key)
        found = self.objects.stat(key)
        if fault is Fault.LOST_ANSWER:
            raise self._error(key)
        return found

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        """See `Objects`. Half of a listing is its later half."""
        fault = self._begin("list", prefix)
        found = [*self.objects.list(prefix)]
        yield from found[(len(found) + 1) // 2 :] if fault is Fault.TRUNCATE else found
        if fault is Fault.LOST_ANSWER:
            raise self._error(prefix)

    def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
        """See `Objects`. What fails, fails for each key."""
        try:
            fault = self._begin("delete", keys[0] if keys else "")
        except ArchiveError as error:
            return dict.fromkeys(keys, error)
        failed = self.objects.delete(keys)
        if fault is Fault.REPEAT:
            self.objects.delete(keys)
        if fault is Fault.LOST_ANSWER:
            return {key: self._error(key) for key in keys}
        return failed

    def close(self) -> None:
        """See `Objects`."""
        self.objects.close()

    def _begin(self, name: str, key: str) -> Fault | None:
        fault = self.decide(name, key)
        if fault is Fault.SLOW:
            self.waits()
        if fault is Fault.FAIL:
            raise self._error(key)
        return fault

    def _error(self, key: str) -> ArchiveError:
        return ArchiveError(self.trouble, key, "as the test asked")


def _bent(fault: Fault | None, data: bytes, at: int | None = None) -> bytes:
    if fault is Fault.TRUNCATE:
        return data[: len(data) // 2]
    if fault is Fault.LIE and data:
        at = len(data) // 2 if at is None else at
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    return data


def at_request(number: int, fault: Fault) -> Decide:
    """Only the request of this number, from 0 on, has the fault."""
    left = [number]

    def decide(name: str, key: str) -> Fault | None:
        left[0] -= 1
        return fault if left[0] == -1 else None

    return decide


def at_every(fault: Fault, *names: str) -> Decide:
    """All requests of these names have the fault."""
    return lambda name, key: fault if name in names else None
