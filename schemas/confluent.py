"""The Confluent wire format: a zero byte, a schema id of a registry (4 bytes, big-endian), a body.

Single-object encoding begins with C3, so the first byte tells the two apart. What an id stands for
only a registry knows, and the fold asks nobody: the policy lists the ids that are in force, each
with the fingerprint of a schema of ours. Read by that list, a value means the same on any machine
and in any year, with or without a registry.
"""

from __future__ import annotations

from typing import Final

from dalsegno.schemas.codec import HEAD_BYTES, MARKER
from dalsegno.schemas.control import RegistryId
from dalsegno.schemas.errors import DecodeError, Fault

MAGIC: Final = b"\0"
FRAME_BYTES: Final = 5
ID_MAX: Final = 2**31 - 1


def frame(schema_id: int, value: bytes) -> bytes:
    """The same record under an id. `value`: as `dalsegno.schemas.codec.encode` gives it."""
    return MAGIC + schema_id.to_bytes(4, "big") + value[HEAD_BYTES:]


class Ids:
    """The ids that a policy lists. Of an id that is listed twice the first counts."""

    def __init__(self, listed: tuple[RegistryId, ...]) -> None:
        self.listed = listed
        self._heads: dict[bytes, bytes] = {}
        for each in listed:
            if 0 <= each.id <= ID_MAX:
                head = MAGIC + each.id.to_bytes(4, "big")
                self._heads.setdefault(head, MARKER + each.fingerprint)

    def single_object(self, value: bytes) -> bytes:
        """The value in single-object encoding. Raises `DecodeError` for an id not listed."""
        head = self._heads.get(value[:FRAME_BYTES])
        if head is not None:
            return head + value[FRAME_BYTES:]
        if len(value) < FRAME_BYTES:
            raise DecodeError(Fault.BAD_FRAME, "a zero byte, and no whole schema id behind it")
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
        raise DecodeError(
            Fault.UNKNOWN_SCHEMA,
            f"schema id {schema_id} is not in the policy's registry_ids: "
            "`dalsegno schemas register` lists what the registry has of ours",
            offset=1,
        )
