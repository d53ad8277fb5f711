"""An engine signs only with a key that its partitions' policy lists, and says so if it has none."""

from __future__ import annotations

import json
import secrets

import pytest
from confluent_kafka import Message
from tests.integration.engine.harness import KEY_HEX, EngineProcess, Lab, metric, wait_for

from dalsegno.client import Client, Flow
from dalsegno.ops.cli import app
from dalsegno.ops.kafka.fault_points import append_to_faults
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import headers
from dalsegno.schemas.codec import decode
from dalsegno.schemas.control import ClockTick, Policy, PolicySet
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka
PARTITIONS = 1
SECOND_HEX = "fedcba9876543210" * 4
BOTH = f"k1:{KEY_HEX},k2:{SECOND_HEX}"
LOOKS = "dalsegno_event_loop_lag_seconds_count"
LOOKS_ENOUGH = 40
"""Each of them asks for a tick if one is owed, ten in a second: four ticks would have come."""
FLOW = Flow("keys", version=1, ttl="30m")


@FLOW.step(timeout="10m")
def wait_for_nobody() -> None:
    """No worker runs: its handoff stays dispatched, so live time has to move."""


def set_policy(settings: EngineSettings, listed: tuple[str, ...]) -> None:
    """As `dalsegno policy apply` does: for the runs, and for the fault points."""
    policy = Policy(mac_keys=listed)
    Writer(settings).append_control(PolicySet(partition=0, number=1, policy=policy))
    append_to_faults(settings, PolicySet(partition=0, number=1, policy=policy))


def policy_offset(lab: Lab) -> int:
    found = [m.offset() for m in lab.read(lab.topics.events, 0) if kind(m) is PolicySet]
    return int(found[-1] or 0)


def kind(message: Message) -> type:
    return type(decode(message.value() or b""))


def ticks_after(lab: Lab, offset: int) -> list[bytes]:
    """Which key signed each tick behind this offset."""
    found = lab.read(lab.topics.events, 0)
    ticks = [m for m in found if (m.offset() or 0) > offset and kind(m) is ClockTick]
    return [dict(m.headers())[headers.MAC].partition(b":")[0] for m in ticks]


def start_a_run(lab: Lab) -> str:
    with Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix) as client:
        return client.start(FLOW, {}, run_id=secrets.token_hex(8))


def signed_by_the_second(lab: Lab) -> EngineSettings:
    return lab.make_settings(mac_keys={"k2": bytes.fromhex(SECOND_HEX)})


def letters(lab: Lab) -> int:
    return lab.end(lab.topics.dead_letters, 0)


def test_an_engine_signs_with_another_of_its_keys_once_its_first_is_not_in_force(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = lab.engine(fold="core", DALSEGNO_MAC_KEYS=BOTH)
    engine.wait_ready()
    set_policy(signed_by_the_second(lab), ("k2",))
    engine.wait_caught_up()
    start_a_run(lab)
    since = policy_offset(lab)
    wait_for("ticks", lambda: len(ticks_after(lab, since)) >= 3)
    assert set(ticks_after(lab, since)[1:]) == {b"k2"}  # one may have been on its way
    assert letters(lab) <= 1
    engine.kill()
    engine.restart()
    engine.wait_ready()
    since = lab.end(lab.topics.events, 0)
    wait_for("ticks after a restore", lambda: len(ticks_after(lab, since)) >= 2)
    assert set(ticks_after(lab, since)) == {b"k2"}
    assert letters(lab) <= 1
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DALSEGNO_MAC_KEYS", BOTH)
    app.run(["doctor", "--json"])
    found = [each for each in json.loads(capsys.readouterr().out) if each["subject"] == "signing"]
    assert [each["health"] for each in found] == ["warning"]
    assert "k2 signs" in found[0]["detail"]


def test_an_engine_without_any_key_in_force_is_not_ready_and_floods_nothing(lab: Lab) -> None:
    engine = lab.engine(fold="core")
    engine.wait_ready()
    set_policy(lab.settings, ("k2",))
    status, said = wait_for("not ready", lambda: not_ready(engine))
    assert "k2" in said
    assert "DALSEGNO_MAC_KEYS" in said
    assert status == 503
    assert metric(engine, "dalsegno_signing_key_missing") == 1
    before, since = letters(lab), policy_offset(lab)
    run = start_a_run(lab)
    wait_for("events are taken", lambda: engine.get(f"/runs/{run}")[0] == 200)
    looks = metric(engine, LOOKS)
    wait_for("ticks to be asked for", lambda: metric(engine, LOOKS) >= looks + LOOKS_ENOUGH)
    assert ticks_after(lab, since) in ([], [b"k1"])
    assert letters(lab) <= before + 1
    engine.kill()
    engine.env["DALSEGNO_MAC_KEYS"] = BOTH
    engine.restart()
    engine.wait_ready()
    since = lab.end(lab.topics.events, 0)
    wait_for("ticks again", lambda: b"k2" in ticks_after(lab, since))
    assert metric(engine, "dalsegno_signing_key_missing") == 0


def not_ready(engine: EngineProcess) -> tuple[int, str] | None:
    status, body = engine.get("/readyz")
    return (status, json.dumps(body)) if status == 503 else None
