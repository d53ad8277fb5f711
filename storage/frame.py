"""Payloads as they are stored: compressed where that makes them smaller, unpacked within a bound.

A frame's own word on its size is compared with what its holder says before anything is allocated;
so a frame of a few bytes that declares exabytes costs nothing.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

import zstandard

LEVEL: Final = 3
DICTIONARY_BYTES_MAX: Final = 32_768
"""No dictionary is longer."""
_WINDOW_LOG_MAX: Final = 27


class _OfThread(threading.local):
    """A compressor for each thread: they work without the interpreter's lock, and two threads in
    one of them spoil each other's frames.
    """

    def __init__(self) -> None:
        self.plain = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False)


_OF_THREAD: Final = _OfThread()


class FrameError(Exception):
    """A frame that does not hold what its holder says."""


class Frame(NamedTuple):
    """A payload as it is stored. `by_dictionary`: it needs the dictionary to be read."""

    data: bytes
    by_dictionary: bool


def store(payload: bytes, dictionary: bytes = b"") -> Frame:
    """The smallest form of a payload: by the dictionary, without it, or as it is."""
    best = Frame(payload, by_dictionary=False)
    plain = _OF_THREAD.plain.compress(payload)
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


def decompress(frame: bytes, size: int, dictionary: bytes = b"") -> bytes:
    """Exactly `size` bytes out of a frame. The caller has bounded `size`.

    Raises `FrameError`.
    """
    try:
        found = zstandard.get_frame_parameters(frame).content_size
    except zstandard.ZstdError as error:
        raise FrameError(str(error)) from error
    if found != size:
        raise FrameError(f"the frame declares {found} bytes, {size} are expected")
    raw = None
    if dictionary:
        raw = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    decompressor = zstandard.ZstdDecompressor(dict_data=raw, max_window_size=1 << _WINDOW_LOG_MAX)
    try:
        payload = decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FrameError(str(error)) from error
    if len(payload) != size:
        raise FrameError(f"the frame holds {len(payload)} bytes, {size} are expected")
    return payload
