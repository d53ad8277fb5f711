"""What was deleted from a local database is in none of its files, once it was compacted."""

from __future__ import annotations

import random
from pathlib import Path

from tests.unit.core.log import Log, chain
from tests.unit.storage.tables import rocks

from dalsegno.schemas.control import ErasureRequested
from dalsegno.storage.warm import Place, WarmStore
from dalsegno.streams.core.partition import PARTITION_KEY


def in_files(folder: Path, mark: bytes) -> list[str]:
    return [path.name for path in sorted(folder.iterdir()) if mark in path.read_bytes()]


def test_deleted_and_replaced_values_leave_the_files(tmp_path: Path) -> None:
    table, rng = rocks(tmp_path), random.Random(1)
    old, new = rng.randbytes(40), rng.randbytes(40)
    for number in range(50):
        table.write({b"k%d-%d" % (number, n): rng.randbytes(200) for n in range(100)})
        if number == 20:
            table.write({b"gone": old, b"changed": old})
            table.flush()
    assert in_files(tmp_path, old)
    table.write({b"gone": None, b"changed": new})
    table.flush()
    assert in_files(tmp_path, old), "a deletion alone removes nothing"
    table.compact()
    assert in_files(tmp_path, old) == []
    assert in_files(tmp_path, new)
    assert table.get_many([b"gone", b"changed"]) == [None, new]
    table.close()


def test_a_run_that_left_the_state_leaves_the_files(tmp_path: Path) -> None:
    mark = random.Random(2).randbytes(20).hex()
    store = WarmStore(rocks(tmp_path), "cluster/topic/0")
    log = Log()
    for number in range(30):
        log.start(chain(2), run_id=f"r{number}", context={"name": "x" * 300})
    log.start(chain(2), run_id="subject", context={"name": mark, "more": [mark] * 500})
    store.put(dict(log.partition.capture()), Place(1, 0))
    store.flush()
    assert in_files(tmp_path, mark.encode())
    log.put(ErasureRequested(run_id="subject", erasure_id="e", reason="asked", requested_by="ana"))
    store.put(dict(log.partition.capture()), Place(2, 0))
    store.compact()
    assert in_files(tmp_path, mark.encode()) == []
    assert not store.load(["subject"])
    assert len(store.load([f"r{number}" for number in range(30)])) == 30
    assert {key for key, _ in store.others()} >= {PARTITION_KEY}
    store.close()
