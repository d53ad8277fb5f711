"""What goes wrong while the world runs: each fault is one small function, drawn by its weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.client import unreadable
from tests.simulation.clock import Process

from dalsegno.schemas.control import StallSuspected, Verdict

if TYPE_CHECKING:
    from tests.simulation.world import World


class Faults:
    """Strikes at random moments until the world grows calm, then heals everything."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.frozen: list[Process] = []

    def plan(self) -> None:
        """Draw the moments of the whole schedule at once."""
        world = self.world
        for _ in range(world.setup.faults):
            when = world.scheduler.now_ms + self.rng.randrange(0, world.setup.chaos_ms)
            strike = self.rng.choice(STRIKES)
            world.scheduler.at(when, lambda strike=strike: self.strike(strike))

    def strike(self, strike: Callable[[Faults], None]) -> None:
        if not self.world.network.calm:
            self.world.trace("fault", strike.__name__)
            strike(self)

    def heal(self) -> None:
        for process in self.frozen:
            process.thaw()
        self.frozen.clear()
        for owner in (*self.world.engines, *self.world.workers):
            owner.process.crash_in = None

    def victim(self, owners: list[Any]) -> Process | None:
        alive = [owner.process for owner in owners if owner.process.alive]
        return self.rng.choice(alive) if alive else None

    def kill(self, owners: list[Any]) -> None:
        process = self.victim(owners)
        if process is not None:
            # Not now, but between two of its next actions.
            process.crash_in = self.rng.randrange(1, 60)

    def freeze(self, owners: list[Any]) -> None:
        process = self.victim(owners)
        if process is None or process.frozen:
            return
        process.freeze()
        self.frozen.append(process)
        length = self.rng.choice((300, 1_500, 5_000, 15_000))
        self.world.scheduler.after(length, process.thaw)

    def kill_engine(self) -> None:
        self.kill(self.world.engines)

    def kill_worker(self) -> None:
        self.kill(self.world.workers)

    def freeze_engine(self) -> None:
        self.freeze(self.world.engines)

    def freeze_worker(self) -> None:
        self.freeze(self.world.workers)

    def evict_engine(self) -> None:
        """The group puts out a healthy engine: until it hears of it, it is a zombie."""
        self.evict(self.world.engine_group)

    def evict_worker(self) -> None:
        self.evict(self.world.queue_group)

    def evict(self, group: Any) -> None:
        if group.members:
            group.evict(self.rng.choice(list(group.members)))

    def change_leader(self) -> None:
        """The new leader's clock may be behind: append time goes back."""
        log = self.rng.choice(self.world.all_logs)
        log.change_leader(self.rng.randrange(-2_500, 2_500), self.rng.choice((0, 200, 3_000)))

    def change_events_leader(self) -> None:
        log = self.rng.choice(self.world.events)
        log.change_leader(self.rng.randrange(-2_500, 2_500), self.rng.choice((0, 0, 1_000, 8_000)))

    def skew_worker(self) -> None:
        worker = self.rng.choice(self.world.workers)
        self.world.clock_skew[worker.name] = self.rng.choice((-600_000, 600_000))

    def write_rubbish(self) -> None:
        log = self.rng.choice(self.world.events)
        log.append("", unreadable(), value=b"rubbish", writer="rubbish")

    def judge_wrongly(self) -> None:
        """A verdict about any attempt, with any evidence, true or not."""
        rng = self.rng
        log = rng.choice(self.world.events)
        attempts = self.world.checker.references[log.number].in_flight
        if not attempts:
            return
        attempt = rng.choice(list(attempts.values()))
        verdict = StallSuspected(
            run_id=attempt.run_id,
            step=attempt.step,
            epoch=max(1, attempt.epoch - rng.choice((0, 0, 0, 1))),
            verdict=rng.choice(list(Verdict)),
            events_offset=max(0, log.end - rng.choice((0, 0, 1, 5, 30))),
            heartbeats_at_ms=self.world.scheduler.now_ms - rng.choice((0, 2_000, 15_000, 40_000)),
            worker=attempt.worker,
            incarnation=attempt.incarnation,
            source="a monitor that is wrong",
        )
        late = rng.choice((0, 5, 800))
        self.world.scheduler.after(
            late, lambda: log.append(attempt.run_id, verdict, writer="monitor")
        )


STRIKES: tuple[Callable[[Faults], None], ...] = (
    Faults.kill_engine,
    Faults.kill_engine,
    Faults.kill_worker,
    Faults.kill_worker,
    Faults.freeze_engine,
    Faults.freeze_worker,
    Faults.evict_engine,
    Faults.evict_worker,
    Faults.change_leader,
    Faults.change_events_leader,
    Faults.skew_worker,
    Faults.write_rubbish,
    Faults.judge_wrongly,
    Faults.judge_wrongly,
    Faults.judge_wrongly,
)
