"""The tables that the contract holds for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.storage.rocksdb import RocksMemory, RocksTable


def rocks(folder: Path) -> RocksTable:
    """A database with little memory."""
    return RocksTable(folder, RocksMemory(4 << 20, 4 << 20))


@pytest.fixture(params=["memory", "rocksdb"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """An empty table of each kind."""
    made: Table = MemoryTable() if request.param == "memory" else rocks(tmp_path)
    yield made
    made.close()
