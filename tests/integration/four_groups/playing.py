"""One group: engines, workers and services come up, runs come in until every interruption of the
schedule has happened, and all of them end.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from tests.integration.engine.harness import KEY_HEX, Lab, wait_for
from tests.integration.four_groups.boundaries import (
    ENGINES,
    WORKERS,
    Group,
    Interruption,
    schedule,
)
from tests.integration.four_groups.clerk import Clerk, switch
from tests.integration.four_groups.fleet import Fleet
from tests.integration.four_groups.flows import QUEUES, Start, starts
from tests.integration.four_groups.interrupting import SCHEDULE
from tests.integration.four_groups.observed import Sample
from tests.integration.four_groups.services_process import addresses
from tests.oracle.progress import wait_quiet

from dalsegno.client import Client, EngineUnavailable, RunResult, UnknownRun
from dalsegno.ops.embedded.ports import free_ports
from dalsegno.ops.http import http_get
from dalsegno.ops.kafka.writer import Writer
from dalsegno.ops.people.keys import SigningKey
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.outputs import Escalation
from dalsegno.streams.engine.topics_admin import TopicAdmin

RUNS_MIN: Final = 20
RUNS_MAX: Final = 240
EVERY_S: Final = 0.2
THEN_EVERY_S: Final = 0.4
"""Once there are enough of them: only so that each process still comes to its boundaries."""
LIMIT_S: Final = 240.0
PARTITIONS: Final = 2
_OUTAGE: Final = range(5, 12)
"""While these runs are started, services of the failing group are away."""
_AWAY: Final = {
    "risk/data-validation": "down",
    "documents/model": "down",
    "reconciliation/booking": "loses answers",
}
_LOST: Final = {"reconciliation/booking": "loses answers"}


@dataclass
class Played:
    """What came of it. `samples`: what clients were told, while it went on and at the end."""

    lab: Lab
    folder: Path
    begun: list[Start]
    ends: dict[str, RunResult]
    hits: list[Interruption]
    samples: list[Sample] = field(default_factory=list)
    restarts: int = 0
    decided: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def play(group: Group, lab: Lab, seed: int, *, breaks: tuple[str, ...] = ()) -> Played:
    """Plays a group to its end. `breaks`: deliberate ones, by name."""
    folder = lab.folder
    TopicAdmin(lab.settings).create(("back",), PARTITIONS)
    key = SigningKey.new("ana", "ana")
    _set_policy(lab, key)
    (folder / SCHEDULE).write_text(json.dumps(schedule(seed, group)))
    stage = _Stage(group, lab, seed, breaks)
    played = Played(lab, folder, [], {}, [])
    try:
        stage.up()
        with Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix) as client:
            _go(played, stage, client, key)
        wait_quiet(lab)
    finally:
        stage.fleet.stop()
        played.hits = stage.fleet.hits()
        played.restarts = stage.fleet.restarts
        played.wrong += stage.fleet.wrong
    return played


def _set_policy(lab: Lab, key: SigningKey) -> None:
    """Short limits, so that what is never started is given out again while the test runs."""
    policy = Policy(
        queues=("default", "back"), decision_keys=(key.public,), start_limit_ms=6_000,
        start_margin_ms=500, redispatch_initial_ms=200, redispatch_max_ms=2_000,
    )  # fmt: skip
    writer = Writer(lab.settings)
    for partition in range(lab.partitions):
        writer.append_control(PolicySet(partition=partition, number=1, policy=policy))


class _Stage:
    """The processes of a group."""

    def __init__(self, group: Group, lab: Lab, seed: int, breaks: tuple[str, ...]) -> None:
        self.group, self._folder = group, lab.folder
        self.seed, self._breaks = seed, breaks
        services, *engines = free_ports(1 + len(ENGINES[group]))
        self.services = f"http://127.0.0.1:{services}/"
        self.engines = dict(zip(ENGINES[group], engines, strict=True))
        self._port = services
        env = {
            "DALSEGNO_BOOTSTRAP_SERVERS": lab.bootstrap,
            "DALSEGNO_PREFIX": lab.prefix,
            "DALSEGNO_DEV": "true",
            "DALSEGNO_MAC_KEYS": f"k1:{KEY_HEX}",
            **addresses(self.services),
        }
        self.fleet = Fleet(lab.folder, env)

    def up(self) -> None:
        """Starts all, and returns when they are ready."""
        folder, start = str(self._folder), self.fleet.start
        start("services", "services_process", str(self._port), folder, str(self.seed))
        for name, port in self.engines.items():
            env = {"DALSEGNO_HTTP_PORT": str(port), "DALSEGNO_NAME": name}
            start(name, "engine_process", name, folder, *self._breaks, env=env)
        for name in WORKERS:
            queues = ",".join(QUEUES[self.group][name])
            start(name, "worker_process", name, folder, self.group, queues, *self._breaks)
        self.fleet.keep()
        wait_for("services", lambda: _answers(self.services + "health"))
        for name, port in self.engines.items():
            wait_for(name, lambda port=port: _answers(f"http://127.0.0.1:{port}/readyz"))


def _answers(url: str) -> bool:
    try:
        return http_get(url, 2.0)[0] == 200
    except OSError:
        return False


def _go(played: Played, stage: _Stage, client: Client, key: SigningKey) -> None:
    group = stage.group
    away = {"on": False}

    def call(modes: dict[str, str]) -> None:
        away["on"] = any(modes.values())
        switch(stage.services, json.dumps(modes).encode())

    def before(package: Escalation) -> None:
        """The clerk sees to it that the booking service answers again, and then decides."""
        if package.flow == "reconciliation" and away["on"]:
            call(dict.fromkeys(_LOST, ""))

    clerk = Clerk(played.lab.settings, key, before) if group is Group.PEOPLE else None
    sampler = _Sampler(client, played, stage.seed)
    sampler.start()
    if clerk is not None:
        call(_LOST)
        clerk.start()
    try:
        _start_runs(played, stage, client, call)
        deadline = time.monotonic() + LIMIT_S
        for each in played.begun:
            left_ms = max(1_000, int((deadline - time.monotonic()) * 1_000))
            played.ends[each.run_id] = client.wait(each.run_id, left_ms)
    finally:
        sampler.stop()
        if clerk is not None:
            clerk.stop()
            played.decided.update(str(each) for each in clerk.decided.values())
            played.wrong += [f"clerk: {clerk.error!r}"] if clerk.error else []
    for each in played.begun:
        played.samples.append(Sample.of("client.query", client.query(each.run_id)))


def _start_runs(
    played: Played,
    stage: _Stage,
    client: Client,
    call: Callable[[dict[str, str]], None],
) -> None:
    wanted = len(schedule_of(played.folder))
    for number, each in enumerate(islice(starts(stage.seed, stage.group), RUNS_MAX)):
        if number >= RUNS_MIN and len(stage.fleet.hits()) == wanted:
            return
        if stage.group is Group.FAILURE and number in {_OUTAGE.start, _OUTAGE.stop}:
            call(_AWAY if number == _OUTAGE.start else dict.fromkeys(_AWAY, ""))
        client.start(each.flow, each.inputs, run_id=each.run_id)
        played.begun.append(each)
        time.sleep(EVERY_S if number < RUNS_MIN else THEN_EVERY_S)


def schedule_of(folder: Path) -> list[Interruption]:
    """The schedule that a group was given."""
    return [Interruption(*each) for each in json.loads((folder / SCHEDULE).read_text())]


class _Sampler(threading.Thread):
    """Asks for a run now and then, as any client may at any time."""

    def __init__(self, client: Client, played: Played, seed: int) -> None:
        super().__init__(name="sampler")
        self._client, self._played = client, played
        self._random = Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.15):
            if not self._played.begun:
                continue
            run_id = self._random.choice(self._played.begun[-12:]).run_id
            try:
                view = self._client.query(run_id, timeout="2s")
            except (EngineUnavailable, UnknownRun):
                continue  # an engine is away; the next one tells
            if view.kind in {"run", "ended"}:
                self._played.samples.append(Sample.of("client.query", view))

    def stop(self) -> None:
        self._stopping.set()
        self.join()
