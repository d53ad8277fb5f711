"""What can be wrong with one blob. Trouble of the store itself is an `ArchiveError`."""

from __future__ import annotations

from dalsegno.schemas.blob import Blob


class BlobMissing(Exception):  # noqa: N818 - names what is found
    """The store has no such blob. To ask again does not help: the value has to be put again."""

    def __init__(self, partition: int, blob: Blob) -> None:
        super().__init__(f"{blob} is not in the store of partition {partition}")
        self.partition = partition
        self.blob = blob


class BlobCorrupt(Exception):  # noqa: N818 - names what is found
    """What the store has under the blob's name are other bytes. `keys`: the objects."""

    def __init__(self, partition: int, blob: Blob, keys: tuple[str, ...]) -> None:
        where = ", ".join(keys) if keys else "what was sent"
        super().__init__(f"{blob} of partition {partition}: {where}: the digest is another")
        self.partition = partition
        self.blob = blob
        self.keys = keys
