"""Blob references: one spelling, found in whatever bytes they stand in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.ops.cli.render import plain
from dalsegno.schemas.blob import PACKED_BYTES, Blob, references
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values import Value, pack, unpack
from dalsegno.streams.engine.jsonable import jsonable

BLOB = Blob.of(b"what is kept elsewhere")
DIGEST = BLOB.digest

blobs = st.builds(Blob, st.binary(min_size=32, max_size=32), st.integers(1, 2**63 - 1))
nested: st.SearchStrategy[Value] = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8) | st.binary() | blobs,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


def blobs_in(value: Value) -> set[bytes]:
    if isinstance(value, Blob):
        return {value.digest}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(blobs_in, inner))


@given(value=nested, before=st.binary(max_size=90), after=st.binary(max_size=90))
def test_a_reference_comes_back_and_is_found_wherever_it_stands(
    value: Value, before: bytes, after: bytes
) -> None:
    packed = pack(value)
    assert pack(unpack(packed)) == packed
    assert blobs_in(unpack(packed)) == blobs_in(value)
    assert blobs_in(value) <= references(before + packed + after)


def test_what_looks_like_a_reference_hides_none_behind_it() -> None:
    packed = pack(BLOB)
    for cut in range(1, PACKED_BYTES):
        assert DIGEST in references(packed[:cut] + packed)
    assert references(packed[:-1]) == set()


def test_a_reference_takes_the_same_room_whatever_it_stands_for() -> None:
    assert len(pack(BLOB)) == len(pack(Blob(DIGEST, 2**62))) == PACKED_BYTES


def test_as_text_it_is_its_size_and_the_beginning_of_its_digest() -> None:
    assert str(BLOB) == f"blob {DIGEST.hex()[:12]} of 22 bytes"


@pytest.mark.parametrize(
    "data",
    [
        pack(BLOB)[:1] + b"\x27" + pack(BLOB)[2:-1],  # 39 bytes
        b"\xc8\x00" + pack(BLOB)[1:],  # a longer header
        b"\xc9\x00\x00\x00" + pack(BLOB)[1:],
        b"\x91\xc8\x00" + pack(BLOB)[1:],
        b"\xc7\x28\x02" + pack(BLOB)[3:],  # another extension
        b"\xc7\x28\x01" + bytes(8) + DIGEST,  # of no bytes
        b"\xc7\x28\x01" + b"\xff" * 8 + DIGEST,
        pack(BLOB)[:-1],
        pack(BLOB) + b"\0",
    ],
)
def test_any_other_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(ValueRefusedError):
        unpack(data)


def test_it_matches_its_bytes_and_no_others() -> None:
    assert BLOB.matches(b"what is kept elsewhere")
    assert not BLOB.matches(b"what is kept elsewherE")
    assert not Blob(DIGEST, 21).matches(b"what is kept elsewhere")


@pytest.mark.parametrize(("digest", "size"), [(b"x", 1), (bytes(32), 0), (bytes(32), -1)])
def test_what_can_be_no_blob_is_refused(digest: bytes, size: int) -> None:
    with pytest.raises(ValueRefusedError):
        Blob(digest, size)


def test_no_key_can_be_one() -> None:
    with pytest.raises(ValueRefusedError):
        unpack(b"\x81" + pack(BLOB) + b"\1")
    with pytest.raises(ValueRefusedError):
        pack({BLOB: 1})  # type: ignore[dict-item]


def test_other_extensions_stay_refused() -> None:
    with pytest.raises(ValueRefusedError, match="a Ext has no place"):
        pack([msgspec.msgpack.Ext(1, b"x" * 40)])  # type: ignore[list-item]


def test_screens_and_programs_are_shown_the_reference_and_never_bytes() -> None:
    shown = {"document": str(BLOB), "list": [str(BLOB)]}
    value = {"document": BLOB, "list": [BLOB]}
    assert plain(value) == shown
    assert jsonable(value) == shown
