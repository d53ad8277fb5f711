"""The tables that the contract holds for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.faulty_tables import FaultyTable

from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.storage.rocksdb import RocksMemory, RocksTable


def rocks(folder: Path) -> RocksTable:
    """A database with little memory."""
    return RocksTable(folder, RocksMemory(4 << 20, 4 << 20))


@pytest.fixture(params=["memory", "rocksdb", "memory, repeating", "rocksdb, repeating"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """An empty table of each kind, and one that does every write twice: nobody sees that."""
    kind, _, how = request.param.partition(", ")
    made: Table = MemoryTable() if kind == "memory" else rocks(tmp_path)
    if how:
        made = FaultyTable(made)
        made.twice = True
    yield made
    made.close()
