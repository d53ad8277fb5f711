"""P2 across processes: the same log, other hash seeds, the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.property.digest_of_log import digests

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [1])
def test_other_processes_with_other_hash_seeds_fold_to_the_same_bytes(seed):
    here = digests(seed, 1_000)
    command = [sys.executable, "-m", "tests.property.digest_of_log", str(seed), "1000"]
    started = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "1", "4294967295")
    ]
    answers = [process.communicate(timeout=300)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert set(answers) == {here}


def test_another_log_gives_other_bytes():
    assert not set(digests(1, 200).split()) & set(digests(2, 200).split())
