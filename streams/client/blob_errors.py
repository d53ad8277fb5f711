"""What can go wrong with a large value: what a body may raise, and what its step then reports."""

from __future__ import annotations

from dalsegno.schemas.blob import Blob
from dalsegno.streams.client.failures import DependencyDown, Permanent

BLOB_STORE = "blob-store"
"""The dependency that a step waits for whose large values cannot be put or read."""


class BlobStoreUnavailable(DependencyDown):
    """No engine could put or get a large value in the time that there was. A retry may help."""

    def __init__(self, detail: str) -> None:
        super().__init__(BLOB_STORE, message=f"large values cannot be kept or read now: {detail}")


class BlobMissing(Permanent):
    """The store does not have the value: give it anew."""

    def __init__(self, blob: Blob, detail: str) -> None:
        super().__init__(
            f"{blob} is missing: {detail}",
            advice="supply the field again, or run the step again that wrote it",
            error_class="blob_missing",
        )
        self.blob = blob


class BlobCorrupt(Permanent):
    """What the store has is not what was put: give the value anew."""

    def __init__(self, blob: Blob, detail: str) -> None:
        super().__init__(
            f"{blob} is damaged: {detail}",
            advice="supply the field again, or run the step again that wrote it",
            error_class="blob_corrupt",
        )
        self.blob = blob


class BlobRefused(Permanent):
    """No engine takes the value, however often it is sent: it is too large for instance."""

    def __init__(self, blob: Blob, detail: str) -> None:
        super().__init__(f"{blob} is refused: {detail}", error_class="blob_refused")
        self.blob = blob
