"""Large values: `DALSEGNO_BLOB_…` variables. They are kept in the archive's bucket."""

from __future__ import annotations

import time

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from dalsegno.storage.archive.objects import Objects
from dalsegno.storage.blobs.store import GRACE_MS, BlobStore
from dalsegno.streams.engine.archive_settings import ArchiveSettings


class BlobSettings(BaseSettings):
    """Of the engine; what becomes a blob is a setting of the clients."""

    model_config = SettingsConfigDict(env_prefix="DALSEGNO_BLOB_", frozen=True, extra="ignore")

    grace_ms: int = Field(
        default=GRACE_MS,
        ge=1_000,
        description="how long a value that no run holds stays; the same on all engines",
    )
    sweep_interval_ms: int = Field(default=3_600_000, ge=100)
    bytes_max: int = Field(
        default=32 << 20, ge=1 << 16, le=256 << 20, description="of one value, packed"
    )


def open_blobs(
    archive: ArchiveSettings, prefix: str, blobs: BlobSettings
) -> tuple[Objects, BlobStore] | None:
    """The store and what has to be closed; None without a bucket."""
    if not archive.enabled:
        return None
    # Only here: settings are read by every command, and boto3 is slow to import.
    from dalsegno.storage.archive.s3 import S3Objects

    objects = S3Objects(archive.s3())
    store = BlobStore(objects, prefix, lambda: time.time_ns() // 1_000_000, blobs.grace_ms)
    return objects, store
