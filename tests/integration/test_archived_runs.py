"""Runs that wait for long go to a real S3 and come back, over kills between every two steps."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.engine.archive_deaths import BACK_POINTS, POINTS
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for
from tests.integration.test_archive import command, environment, observed

from dalsegno.client import Client
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.schemas import codec
from dalsegno.schemas.events import RunEvent, StepCompleted, StepStarted
from dalsegno.schemas.outputs import Escalation, Outcome, Transition
from dalsegno.schemas.values import pack
from dalsegno.storage.archive.s3 import S3Objects

pytestmark = pytest.mark.kafka

PARTITIONS = 2
RUNS = 40
NAMES = [f"run-{number:02d}" for number in range(RUNS)]


def settings_of(s3: EmbeddedS3, tmp_path: Path) -> dict[str, str]:
    return {
        **environment(s3),
        "DALSEGNO_ARCHIVE_IDLE_MS": "1000",
        "DALSEGNO_ARCHIVE_INTERVAL_MS": "200",
        "DALSEGNO_DATA_DIR": str(tmp_path / "data"),
    }


def dies(engine: EngineProcess, point: str, where: dict[str, str], tmp_path: Path) -> None:
    """Starts the engine anew, lets it die there, and leaves it dead."""
    marker = tmp_path / point.replace(" ", "-")
    engine.env = {**where, "DIE_AT": point, "DIE_ONCE": str(marker)}
    engine.restart()
    wait_for(f"it dies {point}", lambda: engine.process.poll() is not None)
    assert marker.read_text() == point, engine.tail()
    engine.env = where


def reports(run_id: str) -> list[RunEvent]:
    """A service does the run's only step."""
    one = {"run_id": run_id, "step": "pay", "epoch": 0, "attempt": 1}
    ops = pack([["set", ["receipt"], f"receipt of {run_id}"]])
    return [StepStarted(**one), StepCompleted(**one, ops=ops)]


def look(engine: EngineProcess, run_id: str) -> dict[str, Any]:
    status, found = engine.get(f"/runs/{run_id}")
    assert status == 200
    return found["run"]  # type: ignore[index, call-overload, no-any-return]


def by_hand(lab: Lab, where: dict[str, str]) -> None:
    """What a person sees of runs in the archive, and how one is brought back."""
    env, name = {**lab.environment(), **where}, NAMES[3]
    assert "(archived)" in command(env, "runs").stdout
    assert "archived in" in command(env, "show", name).stdout
    refused = command(env, "show", name, "--context")
    assert "dalsegno restore" in refused.stderr
    back = command(env, "restore", name)
    assert (back.returncode, back.stdout.split(":")[0]) == (0, f"{name} is back"), back.stderr
    segments = json.loads(command(env, "archive", "list", "--json").stdout)
    assert sum(len(each["run_ids"]) for each in segments) >= RUNS
    shown = next(each["segment"] for each in segments if name in each["run_ids"])
    assert name in command(env, "archive", "show", shown).stdout
    assert command(env, "archive", "verify").returncode == 0


def transitions(lab: Lab) -> list[Transition]:
    read = [m for each in lab.ordered(lab.topics.transitions).values() for _, m in each]
    found = [codec.decode(message.value() or b"") for message in read]
    return [each for each in found if isinstance(each, Transition)]


def test_runs_leave_and_come_back_though_engines_are_killed_between_all_steps(
    lab: Lab, s3: EmbeddedS3, tmp_path: Path
) -> None:
    where = settings_of(s3, tmp_path)
    client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
    client.start_many(observed(), {name: {"amount": 7, "card": "4111"} for name in NAMES})
    engine = lab.engine(fold="served", **{**where, "DALSEGNO_ARCHIVE_IDLE_MS": "0"})
    engine.wait_ready()
    engine.wait_caught_up()
    engine.kill()
    for point in POINTS:
        dies(engine, point, where, tmp_path)
    engine.restart()
    engine.wait_ready()
    wait_for("all are archived", lambda: metric(engine, "dalsegno_archive_runs{") == RUNS)
    shown = look(engine, NAMES[0])
    assert (shown["kind"], shown["flow"]) == ("archived", "order")
    assert shown["state"] in {"running", "waiting"}
    found = client.query(NAMES[1], timeout="30s")
    assert (found.flow, found.kind, found.context) == ("order", "archived", None)
    by_hand(lab, where)
    listed = json.loads(command({**lab.environment(), **where}, "runs", "--json").stdout)
    assert sum(run["kind"] == "archived" for run in listed) >= RUNS - 1

    engine.kill()
    lab.send([event for name in NAMES for event in reports(name)])
    for point in BACK_POINTS:
        dies(engine, point, where, tmp_path)
    engine.restart()
    engine.wait_ready()
    for name in NAMES:
        ended = client.wait(name, "90s")
        assert ended.context == {"amount": 7, "receipt": f"receipt of {name}"}, "without secrets"
    engine.wait_caught_up()
    wait_for("none is away", lambda: metric(engine, "dalsegno_archive_runs{") == 0)
    assert engine.term() == 0
    counted = Counter((t.run_id, t.cause, t.outcome) for t in transitions(lab))
    for name in NAMES:
        for cause in ("RunStarted", "StepStarted", "StepCompleted"):
            assert counted[name, cause, Outcome.APPLIED] == 1, (name, cause)
        assert counted[name, "RunRestored", Outcome.APPLIED] >= 1, name
    checked = command({**lab.environment(), **where}, "verify", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    audited = command({**lab.environment(), **where}, "audit", NAMES[0], "--json")
    assert json.loads(audited.stdout)["differences"] == []
    client.close()


def test_with_the_store_away_events_wait_and_a_lost_state_is_said_and_not_guessed(
    lab: Lab, s3: EmbeddedS3, tmp_path: Path
) -> None:
    where = settings_of(s3, tmp_path)
    client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
    client.start_many(observed(), {name: {"amount": 7, "card": "4111"} for name in NAMES[:4]})
    engine = lab.engine(fold="served", **where)
    engine.wait_ready()
    wait_for("all are archived", lambda: metric(engine, "dalsegno_archive_runs{") == 4)
    s3.kill()
    lab.send(reports(NAMES[0]))
    failures = "dalsegno_archive_restore_failures_total"
    wait_for("a failure", lambda: metric(engine, failures) > 0)
    wait_for("its events wait", lambda: look(engine, NAMES[0])["events_waiting"] == 2)
    s3.start()
    client.wait(NAMES[0], "90s")

    objects = S3Objects(s3.settings())
    kept = {
        each.key: objects.get(each.key)
        for each in list(objects.list(f"{lab.prefix}/segments/"))
        if "/runs-" in each.key
    }
    objects.delete(list(kept))
    engine.kill()  # what it knows of the segments is gone
    engine.restart()
    engine.wait_ready()
    lab.send(reports(NAMES[1]))
    wait_for("it is said", lambda: metric(engine, "dalsegno_archive_runs_lost") == 1)
    wait_for("a person hears of it", lambda: notices(lab) == [NAMES[1]])
    shown = look(engine, NAMES[1])
    assert (shown["kind"], shown["archived"]["trouble"]) == ("archived", "missing")
    anew(lab, where, engine, client)
    for key, data in kept.items():
        objects.put(key, data)
    objects.close()
    assert client.wait(NAMES[1], "120s").context["receipt"] == f"receipt of {NAMES[1]}"
    client.close()
    assert engine.term() == 0


def anew(lab: Lab, where: dict[str, str], engine: EngineProcess, client: Client) -> None:
    """A state that is lost is made out of the run's events, and nothing but that."""
    env, name = {**lab.environment(), **where}, NAMES[2]
    lost = command(env, "restore", name)
    assert lost.returncode == 1
    assert f"dalsegno restore {name} --from-events" in lost.stderr
    back = command(env, "restore", name, "--from-events")
    assert (back.returncode, back.stdout.split(":")[0]) == (0, f"{name} is back"), back.stderr
    lab.send(reports(name))
    assert client.wait(name, "60s").context["receipt"] == f"receipt of {name}"
    again = command(env, "restore", name, "--from-events")
    assert (again.returncode, "not in the archive" in again.stdout) == (0, True), again.stderr
    assert metric(engine, "dalsegno_archive_runs_lost") == 1, "the others are lost as before"


def notices(lab: Lab) -> list[str]:
    read = [m for n in range(PARTITIONS) for m in lab.read(lab.topics.escalations, n)]
    found = [codec.decode(m.value() or b"") for m in read]
    return [e.run_id for e in found if isinstance(e, Escalation) and e.reason == "not_restored"]
