"""A monitor that takes a partition over learns from the heartbeats that it reads back."""

from __future__ import annotations

from tests.unit.liveness.partition_world import World

from dalsegno.schemas.control import Verdict

DECLARED_MS = 1_000
BEATS_EACH_MS = 5_000


def _taken_over(read_back_ms: int) -> World:
    """A step that beats far less often than it declares has run for long; its owner is new."""
    world = World()
    world.start("r", heartbeat_ms=DECLARED_MS, since_ms=world.at_ms - 3_600_000)
    for at_ms in range(0, read_back_ms, BEATS_EACH_MS):
        for _ in range(BEATS_EACH_MS // 250 if at_ms else 1):
            world.at_ms += 250
            world.canary()
        world.beat("r")
    return world


def _silent_after(world: World) -> int:
    waited_ms = 0
    while not world.said:
        world.pass_ms(1_000)
        waited_ms += 1_000
    assert world.said[0].verdict is Verdict.SILENT
    return waited_ms


def test_thresholds_are_learned_anew_from_what_is_read_back() -> None:
    world = _taken_over(60_000)
    assert world.monitor.readback_ms >= 60_000
    assert world.judge() == []
    assert _silent_after(world) > 6 * BEATS_EACH_MS


def test_without_them_the_declared_interval_would_have_ended_it() -> None:
    assert _silent_after(_taken_over(1)) <= 11_000
