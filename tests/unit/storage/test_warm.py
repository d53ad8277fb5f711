"""The warm store: what was put in comes back, counted right, or is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.contract.faulty_tables import FaultyTable
from tests.unit.storage.tables import rocks, table

from dalsegno.storage.errors import StoreBusyError, StoreFullError, StoreLostError
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.storage.warm import WRITE_PARTS_MAX, Place, WarmStore
from dalsegno.storage.warm_codec import INLINE_BYTES, META, RUN, seal
from dalsegno.streams.core.runstate import NEVER
from dalsegno.streams.core.state_codec import _PREFIX
from dalsegno.streams.core.warm import Totals

__all__ = ["table"]

PLAN = b"\x07" * 32
OWN = "cluster/topic-id/3"


def header(
    *,
    log_due: int = NEVER,
    live_due: int = NEVER,
    flying: int = 0,
    kind: int = 1,
    body: bytes = b"h",
) -> bytes:
    return _PREFIX.pack(1, kind, log_due, live_due, flying, 0, PLAN) + body


def a_run(name: str, value: bytes = b"v", **about: int) -> dict[bytes, bytes | None]:
    run = name.encode()
    return {
        b"r" + run: header(**about),
        b"c" + run + b"\0p\0\1\0\0": value,
        b"s" + run + b"\0\0\0": b"rows",
    }


def told(store: WarmStore) -> tuple[object, ...]:
    """All that a store tells."""
    names = store.ids("", 99)
    runs = {name: (run.header, sorted(run.parts)) for name, run in store.load(names).items()}
    dues = store.due(None, 99, live=False), store.due(None, 99, live=True)
    return store.totals(), runs, dues, store.moving(), store.plans([PLAN]), store.others()


def test_runs_come_back_with_all_their_parts(table: Table) -> None:
    store = WarmStore(table, OWN)
    store.put({**a_run("a"), **a_run("b", b"w" * 9), b"p" + PLAN: b"plan"}, Place(7, 1))
    found = store.load(["b", "none", "a"])
    assert set(found) == {"a", "b"}
    assert {b"ra": found["a"].header, **dict(found["a"].parts)} == a_run("a")
    assert {b"rb": found["b"].header, **dict(found["b"].parts)} == a_run("b", b"w" * 9)
    assert store.totals() == Totals(2, 2)
    assert store.place == Place(7, 1)
    assert store.plans([PLAN, b"x" * 32]) == {PLAN: (b"plan", 2, 0)}


def test_large_runs_are_kept_part_by_part_and_go_whole(table: Table) -> None:
    store = WarmStore(table, OWN)
    large = b"x" * (INLINE_BYTES + 1)
    store.put(a_run("a", large))
    store.put({b"ca\0bfield": b"more", b"sa\0\0\0": None})
    assert dict(store.load(["a"])["a"].parts) == {b"ca\0p\0\1\0\0": large, b"ca\0bfield": b"more"}
    store.put(dict.fromkeys([b"ra", b"ca\0p\0\1\0\0", b"ca\0bfield"]))
    assert store.load(["a"]) == {}
    assert store.totals() == Totals(0, 0)
    assert [key for key, _ in table.scan(b"", b"\xff", 99)] == [META]


def test_deadlines_and_what_moves_follow_the_headers(table: Table) -> None:
    store = WarmStore(table, OWN)
    store.put(
        {**a_run("b", log_due=5), **a_run("a", log_due=5), **a_run("c", log_due=4, live_due=9)}
    )
    assert store.due(None, 9, live=False) == [(4, "c"), (5, "a"), (5, "b")]
    assert store.due((4, "c"), 1, live=False) == [(5, "a")]
    assert store.due(None, 9, live=True) == [(9, "c")]
    store.put({b"rc": header(log_due=6, flying=2), b"ra": header(kind=2)})
    assert store.due(None, 9, live=False) == [(5, "b"), (6, "c")]
    assert store.due(None, 9, live=True) == []
    assert store.moving() == ["c"]
    assert store.totals() == Totals(3, 2)
    assert store.ids("", 2) == ["a", "b"]
    assert store.ids("b", 2) == ["c"]


def test_putting_in_again_changes_nothing_in_pieces_of_any_size(table: Table) -> None:
    changes: list[tuple[bytes, bytes | None]] = []
    rng = random.Random(3)
    for _ in range(300):
        name = f"r{rng.randrange(20)}"
        if rng.random() < 0.3:
            changes += [(key, None) for key in a_run(name)]
        else:
            changes += a_run(
                name, b"%d" % rng.random().__hash__(), log_due=rng.randrange(90)
            ).items()
    changes.append((b"p" + PLAN, b"plan"))
    at_once = WarmStore(table, OWN)
    at_once.put(dict(changes))
    store = WarmStore(MemoryTable(), OWN)
    for first in [*range(0, len(changes), 7), 100, 200, 800]:
        store.put(dict(changes[first : first + (7 if first not in (100, 200, 800) else 9_999)]))
    assert told(store) == told(at_once)


def test_a_write_that_fails_leaves_the_place_and_can_be_put_in_again() -> None:
    faulty = FaultyTable(MemoryTable())
    store = WarmStore(faulty, OWN)
    parts = {key: value for n in range(WRITE_PARTS_MAX) for key, value in a_run(f"r{n}").items()}
    store.put(a_run("first"), Place(1, 1))
    for error, how in ((StoreBusyError, "busy"), (StoreFullError, "full")):
        faulty.fail_after(1, how)
        with pytest.raises(error):
            store.put(parts, Place(2, 2))
        assert store.place == Place(1, 1)
    store.put(parts, Place(2, 2))
    assert store.place == Place(2, 2)
    assert store.totals() == Totals(WRITE_PARTS_MAX + 1, WRITE_PARTS_MAX + 1)
    assert store.plans([PLAN])[PLAN].refs == WRITE_PARTS_MAX + 1
    again = WarmStore(faulty, OWN)
    assert (again.place, again.totals()) == (store.place, store.totals())


def test_a_write_done_twice_changes_nothing() -> None:
    faulty = FaultyTable(MemoryTable())
    faulty.twice = True
    store = WarmStore(faulty, OWN)
    store.put(a_run("a", log_due=3), Place(1, 1))
    assert store.totals() == Totals(1, 1)
    assert store.due(None, 9, live=False) == [(3, "a")]


@pytest.mark.parametrize(
    "lie",
    [
        lambda key, value: value[:-1],
        lambda key, value: value + b"\0",
        lambda key, value: b"",
        lambda key, value: bytes([value[0] ^ 1]) + value[1:],
        lambda key, value: seal(RUN + b"other", value[:-4]),
    ],
    ids=["cut", "trailing", "empty", "flipped", "of another run"],
)
@pytest.mark.parametrize("size", [1, INLINE_BYTES + 1], ids=["small", "large"])
def test_a_value_that_is_not_what_was_stored_is_refused(lie, size: int) -> None:
    faulty = FaultyTable(MemoryTable())
    store = WarmStore(faulty, OWN)
    store.put(a_run("a", b"v" * size), Place(1, 1))
    faulty.lie = lie
    for ask in (
        lambda: store.load(["a"]),
        lambda: store.put({b"ra": header()}),
        lambda: WarmStore(faulty, OWN),
    ):
        with pytest.raises(StoreLostError):
            ask()


def test_a_part_outside_that_is_gone_is_noticed() -> None:
    held = MemoryTable()
    store = WarmStore(held, OWN)
    store.put(a_run("a", b"v" * (INLINE_BYTES + 1)))
    held.write({key: None for key, _ in held.scan(b"x", b"y", 1)})
    with pytest.raises(StoreLostError):
        store.load(["a"])


@pytest.mark.parametrize("own", ["other-cluster/topic-id/3", "cluster/topic-id/4"])
def test_a_store_of_another_changelog_is_refused(own: str) -> None:
    held = MemoryTable()
    WarmStore(held, OWN).put(a_run("a"), Place(1, 1))
    with pytest.raises(StoreLostError, match="it is of"):
        WarmStore(held, own)


def test_a_table_without_a_position_is_refused() -> None:
    held = MemoryTable()
    WarmStore(held, OWN).put(a_run("a"), Place(1, 1))
    held.write({META: None})
    with pytest.raises(StoreLostError, match="without a position"):
        WarmStore(held, OWN)


def test_rocksdb_comes_back_as_it_was_flushed(tmp_path: Path) -> None:
    store = WarmStore(rocks(tmp_path), OWN)
    store.put(a_run("a"), Place(4, 5))
    store.flush()
    store.close()
    again = WarmStore(rocks(tmp_path), OWN)
    assert again.place == Place(4, 5)
    assert again.load(["a"])["a"].header == header()
    again.close()
