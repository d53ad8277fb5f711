"""Large values of one run: what goes out as a blob, and what a blob in an input stands for.

Fields that the flow marks secret never become blobs: their clear text stays in the log, where
erasure and retention reach it. In a flow with secrets saves and results of effects stay inline,
too, since nobody knows what is in them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, cast

from dalsegno.schemas import values
from dalsegno.schemas.blob import Blob, references
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values import Value
from dalsegno.streams.client.blob_errors import BlobCorrupt, BlobMissing
from dalsegno.streams.client.blobs import BLOB_BYTES_MAX, Blobs, NoBlobStore, Patience
from dalsegno.streams.client.failures import StepFailure

_LOG = logging.getLogger("dalsegno.client")
_NO_STORE_S: Final = 60.0
"""How long "there is no store" is believed."""
_RENEW_AFTER_S: Final = 60.0
"""What was put longer ago is renewed before the event that names it is sent. A store vouches for
half its grace, hours; a step may wait for the store as long as it may run, days.
"""


class Large:
    """Blocking; for one attempt, or one call of a client. `blobs` None: everything is inline.
    `secrets`: the fields that never become blobs.
    """

    def __init__(
        self,
        blobs: Blobs | None,
        partition: int,
        patience: Patience,
        secrets: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._blobs = blobs
        self._clock = clock
        self._partition = partition
        self._patience = patience
        self.secrets = secrets
        self._here: dict[Blob, bytes | StepFailure] = {}

    # On the way out.

    def pack(self, value: object) -> bytes:
        """The packed bytes, of any size that a blob may have. Raises `ValueRefusedError`."""
        off = self._from_bytes() == 0
        bytes_max = values.BYTES_MAX if off else BLOB_BYTES_MAX
        return values.pack(cast(Value, value), bytes_max=bytes_max)

    def too_long(self, packed: bytes, field: str = "") -> bool:
        """Whether this goes out as a blob; without a field, what is private to a step."""
        hidden = field in self.secrets if field else bool(self.secrets)
        return 0 < self._from_bytes() < len(packed) and not hidden

    def needs_store(self, fields: Mapping[str, object]) -> bool:
        """Whether the store has to be asked before these can be named in an event.

        Raises `ValueRefusedError` with the path.
        """
        if self._blobs is None:
            return False
        return any(
            self.too_long(packed, name) or references(packed)
            for name, packed in self._packed(fields)
        )

    def kept(self, fields: Mapping[str, object]) -> dict[str, Value]:
        """The fields, with a blob in the place of each large value: the store has it.

        Raises `ValueRefusedError`, `BlobMissing` for a reference to nothing, and as `Blobs.put`.
        """
        began_s = self._clock()
        found: dict[str, Value] = {}
        for name, packed in self._packed(fields):
            value = cast(Value, fields[name])
            self._renew_all([value] if references(packed) else [])
            found[name] = self._put(packed) if self.too_long(packed, name) else value
        while self._clock() - began_s > _RENEW_AFTER_S:
            # A store that was away in between: what was put first is vouched for anew.
            began_s = self._clock()
            self._renew_all(found.values())
        return found

    def kept_bytes(self, packed: bytes) -> bytes:
        """A private value that is too long, as a packed reference: the store has it."""
        return values.pack(self._put(packed))

    def keep(self, value: object) -> Blob:
        """Keep a value, whatever its size. Raises as `Blobs.put`."""
        assert self._blobs is not None, "only asked of a client"
        packed = values.pack(cast(Value, value), bytes_max=BLOB_BYTES_MAX)
        return self._blobs.put(self._partition, packed, self._patience)

    def _put(self, packed: bytes) -> Value:
        assert self._blobs is not None, "nothing is too long without blobs"
        try:
            return self._blobs.put(self._partition, packed, self._patience)
        except NoBlobStore:
            _LOG.warning(
                "the engines have no blob store (DALSEGNO_ARCHIVE_BUCKET): "
                "values of %d bytes and more stay inline", self._blobs.from_bytes,
            )  # fmt: skip
            self._blobs.off_until_s = time.monotonic() + _NO_STORE_S
            return values.unpack(packed, bytes_max=BLOB_BYTES_MAX)

    def _renew_all(self, named: Iterable[Value]) -> None:
        for value in named:
            for blob in _blobs_in(value):
                self._renew(blob)

    def _renew(self, blob: Blob) -> None:
        assert self._blobs is not None, "asked by `needs_store`"
        try:
            there = self._blobs.renew(self._partition, blob, self._patience)
        except NoBlobStore:
            there = False
        if not there:
            raise BlobMissing(blob, "it is of another partition, or was swept: give the value")

    def _packed(self, fields: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
        for name, value in fields.items():
            try:
                yield name, self.pack(value)
            except ValueRefusedError as error:
                path = f"{name}.{error.path}" if error.path else name
                raise ValueRefusedError(path, error.detail) from None

    def _from_bytes(self) -> int:
        blobs = self._blobs
        return 0 if blobs is None or time.monotonic() < blobs.off_until_s else blobs.from_bytes

    # On the way in.

    def fetch(self, packed: Iterable[bytes]) -> bool:
        """Read every blob that stands in these bytes, so that `whole` need not wait. What went
        wrong is raised when the value is asked for. Returns whether there was any.
        """
        found: list[Blob] = []
        for each in packed:
            if references(each):
                with suppress(ValueRefusedError):  # raised when it is asked for
                    found += _blobs_of(each)
        for blob in found:
            if blob not in self._here:
                try:
                    self._here[blob] = self._get(blob)
                except StepFailure as error:
                    self._here[blob] = error
        return bool(found)

    def whole(self, value: Value) -> Value:
        """The value without references, and with containers of its own.

        Raises as `Blobs.get`.
        """
        if isinstance(value, Blob):
            return self._read(value)
        if isinstance(value, dict):
            return {key: self.whole(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.whole(item) for item in value]
        return value

    def _read(self, blob: Blob) -> Value:
        packed = self._here.get(blob)
        if packed is None:
            packed = self._get(blob)
        if isinstance(packed, StepFailure):
            raise packed
        try:
            return values.unpack(packed, bytes_max=BLOB_BYTES_MAX)
        except ValueRefusedError as error:
            raise BlobCorrupt(blob, f"its bytes are no value: {error}") from error

    def _get(self, blob: Blob) -> bytes:
        if self._blobs is None:
            raise BlobMissing(blob, "this client reads no blobs")
        return self._blobs.get(self._partition, blob, self._patience)


INLINE: Final = Large(None, 0, Patience(0.0))
"""Where there are no engines to ask."""


def own_copy(value: Value) -> Value:
    """Containers are copied, so that a change in place never shows anywhere else."""
    if isinstance(value, dict):
        return {key: own_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [own_copy(item) for item in value]
    return value


def has_blob(value: Value) -> bool:
    """Whether there is a reference in it, at whatever depth."""
    return next(_blobs_in(value), None) is not None


def _blobs_of(packed: bytes) -> list[Blob]:
    return list(_blobs_in(values.unpack(packed)))


def _blobs_in(value: Value) -> Iterator[Blob]:
    if isinstance(value, Blob):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _blobs_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _blobs_in(each)
