"""What a worker and a client do when they are killed, frozen, forked, or cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.client.fixtures import lab  # noqa: F401
from tests.integration.client.lab import Lab, wait_for

from dalsegno.client import Client, ClientConfig, Flow
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.schemas.events import EffectConfirmed, EffectIntended, StepStarted
from dalsegno.schemas.liveness import Hello
from dalsegno.schemas.outputs import EffectStatus, JournalEntry
from dalsegno.streams.client.producer import OutRecord, Producer

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[3]


class Processes:
    """Workers as processes, ended with the test."""

    def __init__(self, lab: Lab, ledger: Path) -> None:  # noqa: F811
        self.lab = lab
        self.ledger = ledger
        self.started: list[subprocess.Popen[bytes]] = []

    def worker(self, crash_after: int = 0, lease_ms: int = 2_000) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.client.worker_process"]
        arguments = [self.lab.bootstrap, self.lab.prefix, str(self.ledger)]
        arguments += [str(crash_after), str(lease_ms)]
        process = subprocess.Popen([*command, *arguments], cwd=ROOT)
        self.started.append(process)
        return process

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def hellos(self) -> list[Hello]:
        return [h for h in self.lab.read(self.lab.topics.heartbeats) if isinstance(h, Hello)]


@pytest.fixture
def processes(lab: Lab, tmp_path: Path) -> Iterator[Processes]:  # noqa: F811
    processes = Processes(lab, tmp_path / "ledger")
    yield processes
    for process in processes.started:
        process.kill()
        process.wait()


def journal(lab: Lab, run_id: str) -> tuple[JournalEntry, ...]:  # noqa: F811
    """As the fold keeps it: intended effects, confirmed where a confirmation came."""
    # type: ignore[attr-defined]
    results = {e.effect: e.result for e in lab.events(run_id, EffectConfirmed)}
    return tuple(
        JournalEntry(
            effect=e.effect,  # type: ignore[attr-defined]
            occurrence=e.occurrence,  # type: ignore[attr-defined]
            key=e.key,  # type: ignore[attr-defined]
            # type: ignore[attr-defined]
            status=EffectStatus.CONFIRMED if e.effect in results else EffectStatus.UNKNOWN,
            epoch=e.epoch,  # type: ignore[attr-defined]
            result=results.get(e.effect, b""),  # type: ignore[attr-defined]
        )
        for e in lab.events(run_id, EffectIntended)
    )


def test_a_step_with_three_effects_that_crashes_after_the_second_does_each_once(
    lab: Lab,  # noqa: F811
    processes: Processes,
) -> None:
    first = processes.worker(crash_after=2)
    handoff = lab.make("r", "order")
    sequence = lab.hand(handoff)
    assert first.wait(60) == -signal.SIGKILL
    processes.worker()
    lab.hand(handoff, sequence=sequence)  # the engine recovers and puts the same handoff out again
    wait_for("both effects confirmed", lambda: len(lab.events("r", EffectConfirmed)) == 2)
    lab.hand(lab.make("r", "order", epoch=2, effects=journal(lab, "r")))
    lab.wait_kinds("r", "EffectIntended", "EffectConfirmed", "StepCompleted")
    done = [line.split() for line in processes.lines()]
    assert [name for name, _, _ in done] == ["reserve", "charge", "mail"]
    assert len({key for _, key, _ in done}) == 3
    assert len(lab.events("r", StepStarted)) == 2


def test_a_restarted_worker_has_its_place_back_at_once_and_says_what_it_found(
    lab: Lab,  # noqa: F811
    processes: Processes,
) -> None:
    # Lease and session are longer than the test waits: neither can be what brings it back.
    first = processes.worker(lease_ms=60_000)
    lab.hand(lab.make("r", "held"))
    wait_for("begun", processes.lines)
    first.kill()
    first.wait()
    processes.worker(lease_ms=60_000)
    lab.hand(lab.make("next", "held"))
    # The same host's lock proves that the first one is gone: no session, no lease is waited for.
    wait_for("the next begun", lambda: "begun next 1" in processes.lines(), 59)
    again = [h for h in processes.hellos() if h.marks and h.incarnation >= 0]
    assert [(m.worker, m.offset) for h in again for m in h.marks] == [(f"{lab.prefix}-w", 1)]


def test_a_worker_that_was_frozen_beyond_its_lease_abandons_what_it_held(
    lab: Lab,  # noqa: F811
    processes: Processes,
) -> None:
    process = processes.worker()
    lab.hand(lab.make("r", "held"))
    wait_for("begun", processes.lines)
    introduced = len(processes.hellos())
    process.send_signal(signal.SIGSTOP)
    threading.Event().wait(2.5)  # longer than the lease: the time itself is what is tested
    process.send_signal(signal.SIGCONT)
    # It abandons all, says a new hello, so that monitors replace at once, and goes on.
    wait_for("a new incarnation", lambda: len(processes.hellos()) > introduced)
    lab.hand(lab.make("r", "held", epoch=2))
    wait_for("epoch 2", lambda: "begun r 2" in processes.lines())
    assert lab.kinds("r") == ["StepStarted", "StepStarted"]


def test_a_worker_stops_on_sigterm(lab: Lab, processes: Processes) -> None:  # noqa: F811
    process = processes.worker()
    lab.hand(lab.make("r", "held"))
    wait_for("begun", processes.lines)
    process.terminate()
    assert process.wait(20) == 0


def test_a_client_after_a_fork_says_so_and_does_not_hang(lab: Lab) -> None:  # noqa: F811
    program = f"""
import os, sys, signal
from dalsegno.client import Client, Flow, ForkedError
flow = Flow("f")
flow.observed(name="a", reads=[], writes=[])
client = Client(bootstrap_servers={lab.bootstrap!r}, prefix={lab.prefix!r})
client.start(flow, {{}}, run_id="parent")
if os.fork() == 0:
    signal.alarm(5)  # a hang is a failure
    try:
        client.start(flow, {{}}, run_id="child")
    except ForkedError:
        client.close()
        with Client(bootstrap_servers={lab.bootstrap!r}, prefix={lab.prefix!r}) as own:
            own.start(flow, {{}}, run_id="own")
        del client
        sys.exit(7)  # with the interpreter's own clean-up
    os._exit(1)
_, status = os.wait()
client.start(flow, {{}}, run_id="after")
client.close()
print(os.waitstatus_to_exitcode(status))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout.split() == ["7"], result.stderr
    for run_id in ("parent", "own", "after"):
        lab.wait_kinds(run_id, "RunStarted")
    assert lab.kinds("child") == []


def test_a_pool_of_forked_processes_hears_so_too(lab: Lab) -> None:  # noqa: F811
    """R052: each of them may make a client of its own."""
    made = f"bootstrap_servers={lab.bootstrap!r}, prefix={lab.prefix!r}"
    program = f"""
import multiprocessing
from dalsegno.client import Client, Flow, ForkedError
flow = Flow("f")
flow.observed(name="a", reads=[], writes=[])
client = Client({made})
client.start(flow, {{}}, run_id="before")

def emit(number):
    try:
        client.start(flow, {{}}, run_id=f"lost-{{number}}")
    except ForkedError:
        with Client({made}) as own:
            return own.start(flow, {{}}, run_id=f"own-{{number}}")

with multiprocessing.get_context("fork").Pool(2) as pool:
    print(*pool.map_async(emit, range(4)).get(45))
client.close()
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout.split() == [f"own-{number}" for number in range(4)], result.stderr
    for number in range(4):
        lab.wait_kinds(f"own-{number}", "RunStarted")
        assert lab.kinds(f"lost-{number}") == []


def test_what_was_queued_leaves_with_the_process_even_without_close(lab: Lab) -> None:  # noqa: F811
    program = f"""
from dalsegno.streams.client.config import ClientConfig
from dalsegno.client import Client, Flow
flow = Flow("f")
flow.observed(name="a", reads=[], writes=[])
client = Client(bootstrap_servers={lab.bootstrap!r}, prefix={lab.prefix!r})
client.start(flow, {{}}, run_id="r")
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
    lab.wait_kinds("r", "RunStarted")


def test_a_full_queue_while_the_broker_stands_still_loses_no_report(
    lab: Lab,  # noqa: F811
    kafka: EmbeddedKafka,
) -> None:
    config = ClientConfig(lab.bootstrap, prefix=lab.prefix, queue_messages_max=100)
    producer = Producer(config, "burst")
    producer.deliver(OutRecord(lab.topics.events, 0, b"warm", b"x"), 20)
    outcomes: list[object] = []
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        for number in range(1_001):
            record = OutRecord(lab.topics.heartbeats, 0, b"k", str(number).encode())
            # type: ignore[union-attr]
            producer.send(record, lambda receipt, error: outcomes.append(error or receipt.offset))
        assert producer.unsent >= 1_000
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    wait_for("all outcomes", lambda: len(outcomes) == 1_001)
    assert outcomes == list(range(1_001))
    assert producer.close(10) == 0


def test_no_broker_is_an_error_at_the_caller_in_time() -> None:
    config = ClientConfig("127.0.0.1:1", delivery_timeout_ms=500, request_timeout_ms=500)
    flow = Flow("f")
    flow.observed(name="a", reads=[], writes=[])
    client = Client(config=config)
    with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT"):
        client.start(flow, {})
    client.close()
