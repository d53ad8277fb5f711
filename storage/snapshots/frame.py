"""The payload of a link: compressed where that makes it smaller, unpacked within a bound.

A frame's own word on its size is compared with the link's header before anything is allocated; so a
frame of a few bytes that declares exabytes costs nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import zstandard

from dalsegno.storage.snapshots.errors import Fault, SnapshotCorrupt

LEVEL: Final = 3
DICTIONARY_BYTES_MAX: Final = 32_768
"""As much of the chain's last payloads serves as the dictionary of the next."""
_WINDOW_LOG_MAX: Final = 27
_PLAIN: Final = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False)


class Frame(NamedTuple):
    """A payload as it is stored. `by_dictionary`: it needs the dictionary to be read."""

    data: bytes
    by_dictionary: bool


def store(payload: bytes, dictionary: bytes = b"") -> Frame:
    """The smallest form of a payload: by the dictionary, without it, or as it is."""
    best = Frame(payload, by_dictionary=False)
    plain = _PLAIN.compress(payload)
    if len(plain) < len(payload):
        best = Frame(plain, by_dictionary=False)
    if dictionary:
        told = _compressor(dictionary, len(payload)).compress(payload)
        if len(told) < len(best.data):
            best = Frame(told, by_dictionary=True)
    return best


def _compressor(dictionary: bytes, size: int) -> zstandard.ZstdCompressor:
    raw = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, source_size=size, dict_size=len(dictionary)
    )
    return zstandard.ZstdCompressor(dict_data=raw, compression_params=parameters)


def decompress(run_id: str, frame: bytes, size: int, dictionary: bytes = b"") -> bytes:
    """Exactly `size` bytes out of a frame. The caller has bounded `size`.

    Raises `SnapshotCorrupt`.
    """
    try:
        found = zstandard.get_frame_parameters(frame).content_size
    except zstandard.ZstdError as error:
        raise SnapshotCorrupt(run_id, Fault.FRAME, str(error)) from error
    if found != size:
        detail = f"the frame declares {found} bytes, the header {size}"
        raise SnapshotCorrupt(run_id, Fault.FRAME, detail)
    raw = None
    if dictionary:
        raw = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    decompressor = zstandard.ZstdDecompressor(dict_data=raw, max_window_size=1 << _WINDOW_LOG_MAX)
    try:
        payload = decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise SnapshotCorrupt(run_id, Fault.FRAME, str(error)) from error
    if len(payload) != size:
        detail = f"the frame holds {len(payload)} bytes, the header says {size}"
        raise SnapshotCorrupt(run_id, Fault.FRAME, detail)
    return payload
