"""Which schemas the policy has in force. Pure."""

from __future__ import annotations

from typing import Final

from dalsegno.schemas import codec
from dalsegno.schemas.errors import DecodeError, Fault, SchemaMissing
from dalsegno.schemas.registry import registry

FINGERPRINT: Final = slice(len(codec.MARKER), codec.HEAD_BYTES)


class InForce:
    """The policy's list as a set, for as long as the list is the same object."""

    def __init__(self) -> None:
        self._listed: tuple[bytes, ...] = ()
        self._set: frozenset[bytes] = frozenset()

    def check(self, value: bytes, schemas: tuple[bytes, ...]) -> None:
        """`schemas`: the policy's list, empty for all that this code knows.

        Raises `DecodeError` for a schema that it does not list, `SchemaMissing` for one that it
        lists and this process lacks. A broken frame passes: the codec says what is wrong with it.
        """
        if not schemas or not value.startswith(codec.MARKER) or len(value) < codec.HEAD_BYTES:
            return
        if schemas is not self._listed:
            self._listed, self._set = schemas, frozenset(schemas)
        fingerprint = value[FINGERPRINT]
        if fingerprint not in self._set:
            raise DecodeError(
                Fault.UNKNOWN_SCHEMA, f"schema {fingerprint.hex()} is not in force", offset=2
            )
        if fingerprint not in registry().by_fingerprint:
            raise SchemaMissing(fingerprint)
