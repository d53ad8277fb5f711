"""One contract for every table, and what only the one on disk can suffer."""

import contextlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.storage.tables import rocks, table

from dalsegno.storage.errors import StoreError, StoreFullError, StoreLostError
from dalsegno.storage.memory import MemoryTable
from dalsegno.storage.ports import Table
from dalsegno.storage.rocksdb import RocksMemory, RocksTable

__all__ = ["table"]

KEYS = st.binary(min_size=1, max_size=4)
BATCHES = st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=9)), max_size=12)


def everything(held: Table) -> list[tuple[bytes, bytes]]:
    return held.scan(b"", b"\xff" * 8, 1_000_000)


def test_what_is_written_can_be_read(table: Table) -> None:
    table.write({b"a": b"1", b"b": b"", b"c\0d": b"\0" * 70_000})
    assert table.get_many([b"c\0d", b"none", b"a", b"b"]) == [b"\0" * 70_000, None, b"1", b""]
    table.write({b"a": None, b"none": None, b"b": b"2"})
    assert table.get_many([b"a", b"b"]) == [None, b"2"]
    assert table.get_many([]) == []


def test_a_scan_is_in_order_and_bounded(table: Table) -> None:
    table.write({bytes([n]): b"%d" % n for n in range(9, 0, -1)})
    assert table.scan(b"\x03", b"\x08", 3) == [(b"\x03", b"3"), (b"\x04", b"4"), (b"\x05", b"5")]
    assert table.scan(b"\x07", b"\x08", 3) == [(b"\x07", b"7")]
    assert table.scan(b"\x0a", b"\xff", 3) == []


def test_a_closed_table_says_so(table: Table) -> None:
    table.close()
    table.close()
    with pytest.raises(StoreLostError):
        table.get_many([b"a"])
    with pytest.raises(StoreLostError):
        table.write({b"a": b"1"})


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_both_tables_hold_the_same(batches, tmp_path_factory: pytest.TempPathFactory) -> None:
    memory, disk = MemoryTable(), rocks(tmp_path_factory.mktemp("rocks"))
    for batch in batches:
        memory.write(batch)
        disk.write(batch)
        keys = list(batch)
        assert memory.get_many(keys) == disk.get_many(keys)
    assert everything(memory) == everything(disk)
    disk.close()


def test_a_restart_finds_what_was_flushed_and_a_lock_file_left_behind_is_no_lock(
    tmp_path: Path,
) -> None:
    first = rocks(tmp_path)
    first.write({b"a": b"1"})
    first.close()
    assert (tmp_path / "LOCK").exists()
    again = rocks(tmp_path)
    assert again.get_many([b"a"]) == [b"1"]
    again.close()


KILLED = """
import os, sys
from pathlib import Path
from tests.unit.storage.tables import rocks
held = rocks(Path(sys.argv[1]))
for n in range(50):
    held.write({b"position": b"%d" % n, b"k%d" % n: b"v"})
    if n == 30:
        held.flush()
os.kill(os.getpid(), 9)
"""


def test_kill_9_leaves_all_up_to_some_write_and_nothing_half(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -9
    again = rocks(tmp_path)
    position = int(again.get_many([b"position"])[0] or b"-1")
    assert position >= 30
    assert len(again.scan(b"k", b"l", 100)) == position + 1
    again.close()


def test_the_same_folder_is_refused_while_it_is_open(tmp_path: Path) -> None:
    first = rocks(tmp_path)
    with pytest.raises(StoreError):
        rocks(tmp_path)
    first.close()


def test_one_that_cannot_be_flushed_says_so_and_is_let_go_of(tmp_path: Path) -> None:
    held = rocks(tmp_path)
    held.write({b"k%d" % n: os.urandom(5_000) for n in range(50)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(StoreError, match="too large"):
            held.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    again = rocks(tmp_path)
    assert again.get_many([b"k1"]) == [None]
    again.close()


def test_a_forked_process_is_refused(tmp_path: Path) -> None:
    held = rocks(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            held.write({b"a": b"1"})
        except StoreLostError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    held.close()


def test_cache_filters_and_buffers_are_bounded_together_also_after_opening_again(
    tmp_path: Path,
) -> None:
    cache_bytes, buffer_bytes = 2 << 20, 4 << 20
    for _ in range(2):
        memory = RocksMemory(cache_bytes, buffer_bytes)
        tables = [RocksTable(tmp_path / str(n), memory) for n in range(8)]
        for number, each in enumerate(tables):
            value = os.urandom(2_000)
            for first in range(0, 1_500, 500):
                each.write({b"%d-%d" % (number, n): value for n in range(first, first + 500)})
                assert memory.buffers.get_usage() <= 2 * buffer_bytes
            each.flush()
            assert None not in each.get_many([b"%d-%d" % (number, n) for n in range(1_500)])
            assert each.get_many([b"absent"]) == [None]
        assert memory.cache.get_usage() <= 1.1 * cache_bytes
        for each in tables:
            each.close()


def sst_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sst"))


def filled(folder: Path) -> None:
    held = rocks(folder)
    held.write({b"k%04d" % n: b"value %d" % n * 20 for n in range(2_000)})
    held.close()


@pytest.mark.parametrize("at", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_a_flipped_bit_is_found_or_does_no_harm(tmp_path: Path, at: float) -> None:
    filled(tmp_path)
    path = sst_files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    path.write_bytes(data)
    right: list[bytes | None] = [b"value %d" % n * 20 for n in range(2_000)]
    try:
        held = rocks(tmp_path)
    except StoreLostError:
        return
    with contextlib.suppress(StoreLostError):
        assert held.get_many([b"k%04d" % n for n in range(2_000)]) == right
    held.close()


@pytest.mark.parametrize("name", ["*.sst", "MANIFEST-*", "CURRENT"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_file_cut_or_gone_is_found(tmp_path: Path, name: str, how: str) -> None:
    filled(tmp_path)
    path = next(tmp_path.glob(name))
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StoreError):  # noqa: PT012 - at the opening, or at the first read
        held = rocks(tmp_path)
        if not held.scan(b"", b"\xff", 1):
            raise StoreLostError("empty: a new database was made, which has no position")
        held.get_many([b"k%04d" % n for n in range(2_000)])
        held.close()


def test_a_folder_deleted_under_it_is_found_at_the_next_flush(tmp_path: Path) -> None:
    held = rocks(tmp_path / "db")
    held.write({b"a": b"1"})
    for path in sorted((tmp_path / "db").iterdir()):
        path.unlink()
    (tmp_path / "db").rmdir()
    with pytest.raises(StoreLostError):
        held.flush()
    with pytest.raises(StoreLostError):
        held.close()


FULL = """
import resource, signal, sys
from pathlib import Path
from tests.unit.storage.tables import rocks
from dalsegno.storage.errors import StoreFullError
import os
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
held = rocks(Path(sys.argv[1]))
held.write({b"a": b"1"})
held.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
refused = False
for n in range(40):
    try:
        held.write({b"%d-%d" % (n, i): os.urandom(1_000) for i in range(200)})
        held.flush()
    except StoreFullError:
        refused = True
        break
assert refused, "no write failed"
assert held.get_many([b"a"]) == [b"1"], "what was there cannot be read"
os._exit(11)
"""


def test_a_full_disk_is_an_error_of_the_write_and_reads_go_on(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=False)
    assert done.returncode == 11
    assert issubclass(StoreFullError, StoreError)
