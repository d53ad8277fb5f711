"""Context values: what goes in comes back the same, or is refused with its path."""

import ast
import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schemas.any_values import any_value
from tests.unit.source_tree import ROOT, python_files

from dalsegno.schemas import values
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.values import pack, same, unpack, unpack_map

INDIA = timezone(timedelta(hours=5, minutes=30))
VALUES = any_value(20)


def shape(value: object) -> object:
    """A value with its types, so that 1, 1.0 and True differ and NaN equals itself."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value), struct.pack("d", value) if isinstance(value, float) else value


@given(value=VALUES)
@settings(max_examples=500, deadline=None)
def test_values_come_back_equal_and_of_the_same_type(value: Any) -> None:
    data = pack(value)
    assert shape(unpack(data)) == shape(value)
    assert pack(unpack(data)) == data


@pytest.mark.parametrize(
    ("value", "path", "detail"),
    [
        ({"n": 2**64}, "n", "over 64 bits"),
        ({"n": 2**63}, "n", "over 64 bits"),
        ({"n": -(2**63) - 1}, "n", "over 64 bits"),
        ({"d": Decimal("0.1")}, "d", "a Decimal has no place"),
        ({"d": Fraction(1, 3)}, "d", "a Fraction has no place"),
        ({"s": {1, 2}}, "s", "a set has no place"),
        ({"t": (1, 2)}, "t", "a tuple has no place"),
        ({"k": {1: "a", True: "b"}}, "k", "map key 1 is not text"),  # noqa: F601 - the trap itself
        ({"k": {b"x": 1}}, "k", "map key b'x' is not text"),
        ({"k": {None: 1}}, "k", "map key None is not text"),
        ({"u": ["ok", "a\ud800"]}, "u[1]", "lone surrogate"),
        ({"u": {"\ud800": 1}}, "u.\\ud800", "lone surrogate"),
        ({"at": datetime(2026, 1, 1)}, "at", "has no zone"),  # noqa: DTZ001 - the point of it
        ({"at": date(2026, 1, 1)}, "at", "a date has no place"),
        ({"at": timedelta(1)}, "at", "a timedelta has no place"),
        ({"at": datetime(1, 1, 1, tzinfo=INDIA)}, "at", "outside the years"),
        ({"a": {"b": [0, {"c": (1,)}]}}, "a.b[1].c", "a tuple"),
        ({"b": bytearray(b"x")}, "b", "a bytearray"),
        ({"b": memoryview(b"x")}, "b", "a memoryview"),
        ({"o": msgspec.msgpack.Ext(5, b"x")}, "o", "a Ext"),
        ([[object()]], "[0][0]", "a object"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_path(
    value: Any, path: str, detail: str
) -> None:
    with pytest.raises(ValueRefusedError) as refusal:
        pack(value)
    assert refusal.value.path == path
    assert detail in refusal.value.detail


def test_subclasses_are_refused_too() -> None:
    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    for value in (Text("x"), Number(1), [Text("x")]):
        with pytest.raises(ValueRefusedError):
            pack(value)


@pytest.mark.parametrize(
    "at",
    [
        datetime(2100, 1, 1, tzinfo=UTC),
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
        datetime(2514, 5, 30, 1, 53, 4, tzinfo=UTC),
        datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=INDIA),
    ],
)
def test_times_come_back_as_the_same_instant(at: datetime) -> None:
    again = unpack(pack(at))
    assert isinstance(again, datetime)
    assert again == at
    assert again.utcoffset() == timedelta(0)


def test_not_a_number_and_infinities_are_kept() -> None:
    again = unpack_map(pack({"score": math.nan, "high": math.inf, "low": -math.inf}))
    assert math.isnan(again["score"])  # type: ignore[arg-type]
    assert (again["high"], again["low"]) == (math.inf, -math.inf)


def test_sameness_is_of_packed_bytes() -> None:
    assert same(math.nan, math.nan)
    assert not same(1, True)
    assert not same(1, 1.0)
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})


def test_depth_and_size_are_bounded_in_both_directions() -> None:
    deep: Any = 1
    for _ in range(values.DEPTH_MAX):
        deep = [deep]
    assert unpack(pack(deep)) == deep
    with pytest.raises(ValueRefusedError, match="deeper than 64"):
        pack([deep])
    for data in (b"\x91" * 65 + b"\1", b"\x91" * 1_000_000, b"\x81\xa0" * 500_000):
        with pytest.raises(ValueRefusedError):
            unpack(data)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueRefusedError, match="deeper than 64"):
        pack(endless)
    with pytest.raises(ValueRefusedError, match="over 10"):
        pack("x" * 10, bytes_max=10)
    with pytest.raises(ValueRefusedError, match="over 10"):
        unpack(pack("x" * 10), bytes_max=10)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\1\2",
        b"\xa2x",
        b"\xa1\xff",
        b"\xa3\xed\xa0\x80",  # a surrogate in UTF-8's clothes
        b"\xdd\xff\xff\xff\xff",
        b"\xdd\x10\xff\xff\xff" + b"\1" * 100,
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",  # 2**64 - 1
        b"\x81\1\2",
        b"\x81\xc4\1a\1",
        b"\x81\x80\1",
        b"\x82\xa1a\1\xa1a\2",  # a key twice
        b"\x82\xa1a\1\xd9\1a\2",  # a key twice, in two spellings
        b"\x91\x82\xa1a\1\xa1a\1",
        b"\xd4\5a",  # an extension, whatever its code
        b"\xd4\0a",
        b"\xd4\x80a",
        b"\xc7\1\1x",
        b"\xd4\xff\1",  # a time of one byte
        b"\xd7\xff\0\0\0\4\0\0\0\0",  # a time with one nanosecond
        b"\xc7\x0c\xff\0\0\0\1" + bytes(8),
        b"\xc7\x0c\xff\0\0\0\0" + b"\x7f" * 8,  # beyond the year 9999
        b"\xc7\x0c\xff\xff\xff\xff\xff" + bytes(8),  # more than a second of nanoseconds
    ],
)
def test_bytes_outside_the_profile_are_refused(data: bytes) -> None:
    with pytest.raises(ValueRefusedError):
        unpack(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\xd9\1a", "a"),
        (b"\xd2\0\0\0\1", 1),
        (b"\xca\x3f\xc0\0\0", 1.5),
        (b"\xde\0\2\xa1a\1\xa1b\2", {"a": 1, "b": 2}),
        (b"\xdf\0\0\0\1\xda\0\1a\xdd\0\0\0\1\xc5\0\1x", {"a": [b"x"]}),
        (b"\xd7\xff\0\0\0\0\0\0\0\1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ],
)
def test_longer_forms_of_the_same_value_are_read(data: bytes, value: Any) -> None:
    assert shape(unpack(data)) == shape(value)


@given(data=st.binary(max_size=60))
@settings(max_examples=3000, deadline=None)
def test_random_bytes_give_a_value_or_the_typed_refusal(data: bytes) -> None:
    try:
        value = unpack(data)
    except ValueRefusedError:
        return
    assert shape(unpack(pack(value))) == shape(value)


@given(value=VALUES, junk=st.binary(min_size=1, max_size=4))
@settings(deadline=None)
def test_every_cut_and_every_extra_is_refused(value: Any, junk: bytes) -> None:
    data = pack(value)
    for length in range(len(data)):
        with pytest.raises(ValueRefusedError):
            unpack(data[:length])
    with pytest.raises(ValueRefusedError):
        unpack(data + junk)


def test_data_that_looks_like_objects_stays_data() -> None:
    """R067: no constructor envelope means anything."""
    envelope = {
        "__class__": "os.system",
        "lc": 1,
        "type": "constructor",
        "id": ["os", "system"],
        "kwargs": {"command": "true"},
        "pickle": b"\x80\x04\x95",
    }
    assert unpack(pack(envelope)) == envelope


COMPILES = {"schemas/source.py"}
"""Compiles codecs from the contract's own schema files, and nothing that arrives."""


def imports(tree: ast.Module) -> set[str]:
    """Top names of all that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_what_reads_bytes_can_neither_import_nor_unpickle() -> None:
    """R067, of all that values pass on their way: contract, fold, stores."""
    for path in python_files("schemas", "storage", "streams"):
        name = str(path.relative_to(ROOT))
        if not name.startswith(("schemas/", "storage/", "streams/core/")):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not {"pickle", "marshal", "importlib", "shelve", "copyreg"} & imports(tree), name
        if name not in COMPILES:
            assert not {"eval", "exec", "__import__", "compile"} & names, name


def test_only_a_map_is_a_map() -> None:
    with pytest.raises(ValueRefusedError, match="expected a map, not list"):
        unpack_map(pack([1]))
