"""Diffs for transitions: by path, secrets masked, long values cut, bounded as a whole."""

import pytest
from tests.unit.core_parts.documents import pack, unpack

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_diff import DIFF_BYTES_MAX, VALUE_BYTES_MAX

POLICY = Policy()
FIRST = {"m": {"a": 1, "b/c": 2}, "l": [1, 2], "t": "text", "key": {"pin": "1234"}}


def diff(*ops: list, secrets: tuple[str, ...] = (), first: dict | None = None) -> dict:
    context = Context.create(pack(first or FIRST), POLICY)
    change = context.apply(pack(list(ops)), POLICY)
    before_adoption = change.diff(frozenset(secrets))
    change.adopt()
    return unpack(before_adoption) if before_adoption else {}


@pytest.mark.parametrize(
    ("ops", "added", "changed", "removed"),
    [
        ([["set", ["new"], 1]], {"/new": ["set", 1]}, {}, []),
        ([["set", ["t"], "x"]], {}, {"/t": ["set", "x"]}, []),
        ([["set", ["m", "a"], 2]], {}, {"/m/a": ["set", 2]}, []),
        ([["set", ["m", "n"], 2]], {"/m/n": ["set", 2]}, {}, []),
        ([["del", ["m", "b/c"]]], {}, {}, ["/m/b~1c"]),
        ([["del", ["t"]]], {}, {}, ["/t"]),
        ([["cat", ["t"], "s"]], {}, {"/t": ["cat", "s"]}, []),
        ([["app", ["l"], [3, 4]]], {"/l/2": ["set", 3], "/l/3": ["set", 4]}, {}, []),
        ([["spl", ["l"], 0, 1, [9]]], {}, {"/l": ["spl", 0, 1, [9]]}, []),
        ([["set", ["new"], 1], ["set", ["new"], 2]], {"/new": ["set", 2]}, {}, []),
        ([["cat", ["t"], "s"], ["cat", ["t"], "!"]], {}, {"/t": ["set", "texts!"]}, []),
        ([["del", ["t"]], ["set", ["t"], 1]], {}, {"/t": ["set", 1]}, []),
        ([["set", [], {"l": [1, 2]}]], {}, {}, ["/key", "/m", "/t"]),
    ],
)
def test_each_operation_is_told(ops, added, changed, removed):
    assert diff(*ops) == {"added": added, "changed": changed, "removed": removed}


def test_what_changes_nothing_has_no_diff():
    assert diff(["set", ["t"], "text"], ["cat", ["t"], ""], ["app", ["l"], []]) == {}
    assert diff(["set", ["new"], 1], ["del", ["new"]]) == {}
    assert diff(["set", ["m", "a"], 1], ["spl", ["l"], 0, 2, [1, 2]]) == {}


def test_secrets_leave_no_value_and_no_key():
    ops = (
        ["set", ["key", "pin"], "9999"],
        ["set", ["key", "second pin"], "8888"],
        ["set", ["m", "a"], 2],
    )
    told = diff(*ops, secrets=("key", "token"))
    changed = {"/key": ["secret"], "/m/a": ["set", 2]}
    assert told == {"added": {}, "changed": changed, "removed": []}
    assert b"9999" not in pack(told)
    assert b"second pin" not in pack(told)
    for op in (
        ["set", ["key"], "9999"],
        ["cat", ["key", "pin"], "9999"],
        ["set", ["token"], "9999"],
    ):
        assert b"9999" not in pack(diff(op, secrets=("key", "token")))
    first = Context.create(pack(FIRST), POLICY).first_diff(frozenset({"key"}))
    assert unpack(first)["added"]["/key"] == ["secret"]
    assert b"1234" not in first


def test_long_values_are_cut_and_long_diffs_end():
    long = "x" * VALUE_BYTES_MAX
    assert diff(["set", ["n"], long])["added"] == {"/n": ["cut", len(pack(long))]}
    assert diff(["cat", ["t"], long])["changed"]["/t"][0] == "cut"
    assert diff(["app", ["l"], [long]])["added"] == {"/l/2": ["cut", len(pack(long))]}
    many = diff(["app", ["l"], ["y" * 100] * 1_000])
    assert len(pack(many)) <= DIFF_BYTES_MAX + 100
    assert len(many["added"]) + many["more"] == 1_000
