"""Between records and bytes: Avro single-object encoding, strict in both directions.

A value is two marker bytes C3 01, the schema's fingerprint (CRC-64-AVRO, little-endian), and the
body. Codecs are compiled from the schema files at their first use. Refusals carry kind, path and
reason; what the compiled code refuses, `dalsegno.schemas.diagnosis` reads again, slowly, to say
where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from dalsegno.schemas import diagnosis
from dalsegno.schemas.compile_decoder import Decode, compile_decoder
from dalsegno.schemas.compile_encoder import compile_encoder
from dalsegno.schemas.errors import DecodeError, EncodeError, Fault
from dalsegno.schemas.kinds import KINDS, classes
from dalsegno.schemas.registry import Registry, registry
from dalsegno.schemas.wire import Refused

MARKER: Final = b"\xc3\x01"
HEAD_BYTES: Final = 10
VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""No record is larger, whatever a broker allows; checked before anything is read or written."""

K = TypeVar("K", bound=msgspec.Struct)
_REFUSALS: Final = (Refused, IndexError, UnicodeError)


class Codec:
    """Encodes and decodes the kinds of one registry. Holds compiled functions; safe to share."""

    def __init__(self, schemas: Registry) -> None:
        self._schemas = schemas
        self._encoders: dict[type, Callable[[msgspec.Struct], bytes]] = {}
        self._decoders: dict[bytes, Decode] = {}

    def encode(self, record: msgspec.Struct) -> bytes:
        """The bytes of a record, by the newest schema of its kind. Raises `EncodeError`."""
        encoder = self._encoders.get(type(record)) or self._encoder(type(record))
        try:
            value = encoder(record)
        except _REFUSALS as error:
            newest = self._schemas.newest(type(record).__name__)
            raise diagnosis.encode_error(newest.schema, record) from error
        if len(value) > VALUE_BYTES_MAX:
            kind = type(record).__name__
            raise EncodeError(kind, "", f"{len(value)} bytes, over {VALUE_BYTES_MAX}")
        return value

    def decode(self, value: bytes) -> msgspec.Struct:
        """The one record that the bytes are, whole. Raises `DecodeError`."""
        decoder = self._decoders.get(value[:HEAD_BYTES]) or self._decoder(value)
        if len(value) > VALUE_BYTES_MAX:
            raise DecodeError(Fault.TOO_LARGE, f"{len(value)} bytes, over {VALUE_BYTES_MAX}")
        try:
            record, at = decoder(value, HEAD_BYTES)
        except _REFUSALS as error:
            raise self._body_error(value) from error
        if at != len(value):
            raise self._body_error(value)
        return record  # type: ignore[no-any-return]

    def decode_if(self, kind: type[K], value: bytes | None) -> K | None:
        """The record if it is of this kind; None for another, a tombstone, or what newer code
        wrote. For readers that leave alone what they do not know.
        """
        try:
            record = self.decode(value or b"")
        except DecodeError:
            return None
        return record if isinstance(record, kind) else None

    def kind_of(self, value: bytes) -> str:
        """The kind that the first ten bytes name, or empty."""
        version = self._schemas.by_fingerprint.get(value[len(MARKER) : HEAD_BYTES])
        return version.kind if version and value.startswith(MARKER) else ""

    def _encoder(self, cls: type) -> Callable[[msgspec.Struct], bytes]:
        kind = cls.__name__
        if KINDS.get(kind) is not cls:
            raise EncodeError(kind, "", "is not a kind of the contract")
        newest = self._schemas.newest(kind)
        encoder = compile_encoder(newest.schema, classes(), MARKER + newest.fingerprint)
        self._encoders[cls] = encoder
        return encoder

    def _decoder(self, value: bytes) -> Decode:
        if len(value) < HEAD_BYTES or not value.startswith(MARKER):
            raise DecodeError(
                Fault.BAD_FRAME, "the value does not start with C3 01 and a schema fingerprint"
            )
        fingerprint = value[len(MARKER) : HEAD_BYTES]
        version = self._schemas.by_fingerprint.get(fingerprint)
        if version is None:
            raise DecodeError(
                Fault.UNKNOWN_SCHEMA, f"schema {fingerprint.hex()} is not known", offset=2
            )
        newest = self._schemas.newest(version.kind)
        decoder = compile_decoder(version.schema, newest.schema, classes())
        self._decoders[value[:HEAD_BYTES]] = decoder
        return decoder

    def _body_error(self, value: bytes) -> DecodeError:
        version = self._schemas.by_fingerprint[value[len(MARKER) : HEAD_BYTES]]
        newest = self._schemas.newest(version.kind)
        return diagnosis.decode_error(version.schema, newest.schema, value, HEAD_BYTES)


_CODEC: Final = Codec(registry())

encode = _CODEC.encode
decode = _CODEC.decode
decode_if = _CODEC.decode_if
kind_of = _CODEC.kind_of
