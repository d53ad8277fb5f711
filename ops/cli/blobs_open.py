"""What commands on blobs share: the store of the settings, and its failures as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dalsegno.ops.cli.archive_open import archive_settings, told

if TYPE_CHECKING:
    from dalsegno.storage.blobs.store import BlobStore


@contextmanager
def blob_store() -> Iterator[BlobStore]:
    """Raises UsageFault without a bucket."""
    from contextlib import closing

    from dalsegno.streams.engine.blob_settings import open_blobs

    settings = archive_settings()
    opened = open_blobs(settings.archive, settings.archive_prefix, settings.blobs)
    assert opened is not None, "there is a bucket"
    with told(), closing(opened[0]):
        yield opened[1]
