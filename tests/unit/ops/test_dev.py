"""`dalsegno dev` as a user has it: a run through everything, deaths, and no orphan."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.ops.guard import command_of, pid_in

pytestmark = pytest.mark.kafka

CLI = [sys.executable, "-m", "dalsegno.ops.cli"]
FLOW = """
from dalsegno.client import Flow
order = Flow("order", version=1, ttl="10m")

@order.step(reads=["item"], writes=["price"], timeout="20s")
def quote(ctx):
    return {"price": len(ctx["item"])}
"""


def until(met: Callable[[], bool], limit_s: float, told: Callable[[], str] = str) -> None:
    end = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < end, f"not within {limit_s} s: {told()}"
        time.sleep(0.05)


class Dev:
    """`dalsegno dev` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / ".dalsegno"
        self.output = folder / "dev.log"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DALSEGNO_")}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [*CLI, "dev", "--partitions", "2", "--worker", "shop:order"],
                cwd=self.folder,
                env=self.env,
                stdout=out,
                stderr=out,
            )
        until(lambda: "Ctrl-C stops" in self.told() or not self.alive, 120, self.told)
        assert self.alive, self.told()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def told(self) -> str:
        return self.output.read_text()

    def children(self) -> dict[str, int]:
        files = {
            "kafka": self.data / "kafka" / "java.pid",
            "s3": self.data / "s3" / "weed.pid",
            "engine": self.data / "engine-1.pid",
            "worker": self.data / "worker-1.pid",
        }
        pids = {name: pid_in(path) for name, path in files.items()}
        return {name: pid for name, pid in pids.items() if pid is not None and command_of(pid)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    (tmp_path / "shop.py").write_text(FLOW)
    found = Dev(tmp_path)
    found.start()
    yield found
    if found.process is not None:
        found.process.kill()
        found.process.wait()
    until(lambda: not found.children(), 20)


def test_runs_end_right_while_everything_dies_once(dev: Dev) -> None:
    first = dev.run("start", "shop:order", "--input", '{"item": "fig"}', "--run-id", "r-1")
    assert first.returncode == 0, first.stderr
    assert dev.process is not None
    before = dev.children()
    assert set(before) == {"kafka", "s3", "engine", "worker"}

    dev.process.kill()  # as a crash of the terminal: nothing may be left behind
    dev.process.wait()
    until(lambda: not dev.children(), 20, lambda: str(dev.children()))
    dev.start()

    for name in ("engine", "worker", "s3", "kafka"):
        os.kill(dev.children()[name], signal.SIGKILL)
        started = dev.run(
            "start", "shop:order", "--input", '{"item": "plum"}', "--wait", "60s", "--json"
        )
        assert started.returncode == 0, (name, started.stderr[-500:], dev.told())
        assert json.loads(started.stdout)["context"]["price"] == 4

    shown = dev.run("show", "r-1", "--json")
    assert json.loads(shown.stdout)["stage"] == "succeeded", shown.stderr
    assert len(json.loads(dev.run("runs", "--json").stdout)) == 5

    until(lambda: _audited(dev, "r-1"), 120, lambda: dev.run("audit", "r-1").stderr)
    assert dev.run("verify").returncode == 0
    # The engine may still be taking over what no run of this test needs.
    until(lambda: dev.run("doctor").returncode == 0, 60, dev.told)

    dev.process.terminate()
    assert dev.process.wait(60) == 0, dev.told()
    assert dev.children() == {}


def _audited(dev: Dev, run_id: str) -> bool:
    """Its whole history is in the bucket, though everything died."""
    done = dev.run("audit", run_id, "--archive-only", "--json")
    found = json.loads(done.stdout) if done.returncode == 0 else {"transitions": []}
    changes = [each["changes"] for each in found["transitions"]]
    return bool(changes) and "completed" in json.dumps(changes[-1])


def test_a_second_dev_on_the_same_folder_is_refused(dev: Dev) -> None:
    second = dev.run("dev")
    assert second.returncode == 3
    assert "is in use by" in second.stderr
    assert dev.alive
    assert set(dev.children()) == {"kafka", "s3", "engine", "worker"}
