"""Large values of one run, as a client handles them: what it starts with, what is given to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

from dalsegno.schemas import values
from dalsegno.schemas.blob import Blob
from dalsegno.schemas.values import Value
from dalsegno.streams.client.blobs import Blobs, NoBlobStore, Patience
from dalsegno.streams.client.errors import SettingsError
from dalsegno.streams.client.large import Large


class RunValues:
    """Blocking; for one call. `partition`: the run's."""

    def __init__(self, blobs: Blobs, partition: int, timeout_s: float) -> None:
        self._blobs = blobs
        self._partition = partition
        self._patience = Patience(timeout_s)

    def first(self, inputs: Mapping[str, object], secrets: Collection[str]) -> bytes:
        """The packed first context. Raises `ValueRefusedError`, and as `Large.kept`."""
        large = Large(self._blobs, self._partition, self._patience, secrets)
        fields = large.kept(inputs) if large.needs_store(inputs) else inputs
        return values.pack(cast(Value, dict(fields)))

    def given(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """Fields of a run that is only named. Which of them are secret nobody knows here: none
        becomes a blob by itself, but those that `keep` has made are seen to. Raises as `first`.
        """
        large = Large(self._blobs.by_hand(), self._partition, self._patience)
        return large.kept(fields) if large.needs_store(fields) else fields

    def keep(self, value: object) -> Blob:
        """Raises `BlobStoreUnavailable`, `BlobRefused`, `SettingsError` without a store."""
        try:
            return Large(self._blobs, self._partition, self._patience).keep(value)
        except NoBlobStore as error:
            raise SettingsError(
                "the engines have no blob store: set DALSEGNO_ARCHIVE_BUCKET there"
            ) from error

    def whole(self, value: Value) -> Value:
        """Raises `BlobMissing`, `BlobCorrupt`, `BlobStoreUnavailable`."""
        return Large(self._blobs, self._partition, self._patience).whole(value)
