"""Thousands of seeds; one seed is one schedule, on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.runner import WORLDS, FailedSeedError, run_seed
from tests.simulation.world import World

ROOT = Path(__file__).resolve().parents[2]
SMALL_SEEDS, SMALL_CHUNK = 2_000, 100
LARGE_SEEDS, LARGE_CHUNK = 30, 10


@pytest.mark.parametrize("first", range(0, SMALL_SEEDS, SMALL_CHUNK))
def test_small_worlds_keep_every_promise(first: int) -> None:
    for seed in range(first, first + SMALL_CHUNK):
        run_seed(seed)


@pytest.mark.parametrize("first", range(0, LARGE_SEEDS, LARGE_CHUNK))
def test_large_worlds_keep_every_promise(first: int) -> None:
    for seed in range(first, first + LARGE_CHUNK):
        run_seed(seed, large=True)


@pytest.mark.parametrize("seed", [1, 7, 12])
def test_one_seed_is_one_schedule(seed: int) -> None:
    assert run_seed(seed) == run_seed(seed)


@pytest.mark.parametrize("world", WORLDS)
def test_another_process_with_other_hashes_runs_the_same_schedule(world: str) -> None:
    digest = run_seed(3, large=True, world=world)
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.simulation.soak",
                "--seed",
                "3",
                "--count",
                "1",
                "--large",
                "--world",
                world,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert f"seed 3 digest {digest}" in done.stdout


def test_a_failing_seed_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: World) -> str:
        self.trace("something", "happened")
        raise BrokenPromiseError("P9: an example")

    monkeypatch.setattr(World, "run", run)
    with pytest.raises(FailedSeedError) as failed:
        run_seed(77, large=True)
    text = str(failed.value)
    assert text.startswith("seed 77: P9: an example")
    assert "python -m tests.simulation.soak --seed 77 --count 1 --large" in text
    assert "0 something happened" in text
