"""Earlier versions of live runs on real Kafka and RocksDB: chain and log say the same."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for

from dalsegno.client import Client, VersionNotKept
from dalsegno.ops.folding import fold_records
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.versions import versions_of
from dalsegno.ops.whole_log import whole_log
from dalsegno.schemas import values
from dalsegno.schemas.events import RunEvent, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.streams.engine.jsonable import jsonable

pytestmark = pytest.mark.kafka

RUNS = 24
STEPS = 30
ROUNDS = (10, 8, 7)
"""Steps of every run that complete in each round: the run is still live then."""
pack = msgspec.msgpack.encode
PLAN = Plan(
    steps=tuple(
        StepPlan(
            name=f"s{n}",
            needs=(f"s{n - 1}",) if n else (),
            writes=("log", f"at{n}"),
            queue="default",
            timeout_ms=600_000,
        )
        for n in range(STEPS)
    ),
    secrets=("card",),
)
SECRET = "4111-1111-secret"


def events(run_id: str) -> Iterator[RunEvent]:
    first = {"card": SECRET, "log": [], "note": "x" * 300}
    yield RunStarted(run_id=run_id, flow="long", flow_version=3, plan=PLAN, context=pack(first))
    for n in range(STEPS):
        step = {"run_id": run_id, "step": f"s{n}", "epoch": 1}
        ops = [["app", ["log"], [f"{run_id} did {n}"]], ["set", [f"at{n}"], {"n": n, "ok": True}]]
        yield StepStarted(**step, worker="w", incarnation=1)
        yield StepCompleted(**step, ops=pack(ops))


class Load:
    def __init__(self) -> None:
        self.rng = random.Random(5)
        self.runs = {f"long-{number:03d}": events(f"long-{number:03d}") for number in range(RUNS)}

    def round(self, count: int) -> Iterator[RunEvent]:
        names = [name for name in self.runs for _ in range(count)]
        self.rng.shuffle(names)
        for name in names:
            yield next(self.runs[name])


def of_the_log(lab: Lab, run_id: str) -> dict[int, object]:
    """Every version of the run, from a fold of its partition's log."""
    number = partition_for(run_id, lab.partitions)
    with Reader(lab.settings) as reader:
        raw = whole_log(lab.settings, number, archive=None, chain=[], reader=reader)
        folded = fold_records(lab.settings, raw, number, lab.partitions, versions=True)
        return {each.run_version: jsonable(each) for each in versions_of(folded, run_id)}


def bare(view: object) -> dict[str, object]:
    assert isinstance(view, dict)
    return {name: value for name, value in view.items() if name not in {"source", "at_ms"}}


def shown_at(lab: Lab, run_id: str, version: int) -> dict[str, object]:
    command = [sys.executable, "-m", "dalsegno.ops.cli", "show", run_id, "--at", str(version)]
    done = subprocess.run(
        [*command, "--json"], env=lab.environment(), capture_output=True, check=True, timeout=120
    )
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def compared(lab: Lab, engine: EngineProcess, names: list[str], newest: int) -> Counter[str]:
    """Every version of these runs that the engine keeps is that of the fold; by source."""
    kept: Counter[str] = Counter()
    for run_id in names:
        log = of_the_log(lab, run_id)
        assert list(log) == list(range(1, newest + 1))
        for version, folded in log.items():
            status, body = engine.get(f"/runs/{run_id}?version={version}")
            assert isinstance(body, dict)
            if status == 404:
                assert body["error"] == "version_not_kept"
                continue
            assert bare(body["version"]) == bare(folded), (run_id, version)
            kept[body["version"]["source"]] += 1
    return kept


def answers(engine: EngineProcess, load: Load, version: int) -> bool:
    """Every run's newest version, whoever owns it."""
    return all(engine.get(f"/runs/{name}?version={version}")[0] == 200 for name in load.runs)


def test_every_version_is_as_the_fold_made_it_whatever_happened_to_the_engine(
    lab: Lab, tmp_path: Path
) -> None:
    data, load = tmp_path / "data", Load()
    env = {
        "DALSEGNO_DATA_DIR": str(data),
        "DALSEGNO_WARM_FLUSH_MS": "200",
        "DALSEGNO_SNAPSHOT_VERSIONS_MAX": "4",
    }
    engine = lab.engine(fold="core", **env)
    engine.wait_ready()
    lab.send(load.round(1 + 2 * ROUNDS[0]))
    engine.wait_caught_up()
    wait_for("links", lambda: metric(engine, "dalsegno_snapshot_links_total") >= RUNS)
    kept = compared(lab, engine, load.rng.sample(sorted(load.runs), 3), 1 + ROUNDS[0])
    assert kept.total() == 3 * (1 + ROUNDS[0]), "nothing has happened yet: every version is kept"
    engine.kill()
    engine.restart()
    engine.wait_ready()
    lab.send(load.round(2 * ROUNDS[1]))
    engine.wait_caught_up()
    engine.kill()
    for folder in data.glob("engine-0/partition-0.*"):
        shutil.rmtree(folder)
    engine.restart()
    engine.wait_ready()
    lab.send(load.round(2 * ROUNDS[2]))
    engine.wait_caught_up()
    newest = 1 + sum(ROUNDS)
    assert compared(lab, engine, load.rng.sample(sorted(load.runs), 6), newest)["chain"] > 0
    run_id = next(iter(load.runs))
    log = of_the_log(lab, run_id)
    for version in (1, 5, newest):
        shown, folded = shown_at(lab, run_id, version), bare(log[version])
        assert shown["context"] == values.unpack(base64.b64decode(str(folded["context"])))
        assert (shown["state"], shown["settled"]) == (folded["state"], folded["settled"])
    with Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix, name="asks") as client:
        seen = client.query(run_id, version=newest)
        assert seen.settled.keys() == {f"s{n}" for n in range(sum(ROUNDS))}
        assert len(seen.context["log"]) == sum(ROUNDS)  # type: ignore[arg-type]
        assert seen.secrets_omitted == ("card",)
        with pytest.raises(VersionNotKept, match="its versions are 1 to"):
            client.query(run_id, version=newest + 1)
    assert metric(engine, "dalsegno_snapshot_broken_total") == 0
    other = lab.engine(fold="core")
    wait_for("partitions of the other's own", lambda: other.get("/readyz")[0] == 200)
    wait_for("an answer through the other", lambda: answers(other, load, newest))
    assert engine.term() == 0
