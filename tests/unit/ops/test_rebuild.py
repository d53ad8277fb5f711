"""What a rebuild takes from one archive into another."""

from __future__ import annotations

import pytest

from dalsegno.ops.rebuild import copy_blobs
from dalsegno.schemas.blob import Blob
from dalsegno.storage.archive.memory import MemoryObjects
from dalsegno.storage.blobs.errors import BlobMissing
from dalsegno.storage.blobs.store import BlobStore


def test_blobs_are_found_under_the_new_prefix_and_copied_once() -> None:
    objects = MemoryObjects()
    old = BlobStore(objects, "old", lambda: 0)
    packed = b"x" * 5_000
    blob = Blob.of(packed)
    old.put(1, blob, packed)
    objects.put("old/segments/s", b"no blob")
    new = BlobStore(objects, "new", lambda: 0)
    with pytest.raises(BlobMissing):
        new.get(1, blob)
    assert copy_blobs(objects, "old", "new") == 1
    assert new.get(1, blob) == packed
    assert copy_blobs(objects, "old", "new") == 0
    assert list(objects.list("new/segments/")) == []
