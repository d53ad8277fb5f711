"""The simulated world itself: what it keeps of Kafka, and that its faults really happen."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.simulation.clock import Process, Scheduler, Step
from tests.simulation.groups import Group, Mark, QueueGroup
from tests.simulation.log import Changelog, Entry, Failed, LogPartition, Producer
from tests.simulation.network import Network
from tests.simulation.world import World

from dalsegno.schemas.outputs import Outcome, RunState


def parts(trouble: float) -> tuple[Scheduler, Network, LogPartition]:
    scheduler = Scheduler(Random(1), 1_000)
    return scheduler, Network(scheduler, trouble), LogPartition(scheduler, "events", 0, 0)


def test_an_idempotent_producer_keeps_its_order_and_never_doubles() -> None:
    scheduler, network, log = parts(trouble=40)
    producer = Producer(network, Process(scheduler, "p"))
    acks = [producer.send(log, "k", number) for number in range(300)]
    scheduler.run(1_000_000)
    arrived = [entry.event for entry in log.entries]
    assert arrived == sorted(set(arrived))
    acknowledged = [ack.value.event for ack in acks if isinstance(ack.value, Entry)]
    assert acknowledged == arrived[: len(acknowledged)]
    assert all(isinstance(ack.value, Entry | Failed) for ack in acks)


def test_a_plain_producer_doubles_and_reorders() -> None:
    scheduler, network, log = parts(trouble=40)
    producer = Producer(network, Process(scheduler, "p"), idempotent=False)
    for number in range(300):
        producer.send(log, "k", number)
    scheduler.run(1_000_000)
    arrived = [entry.event for entry in log.entries]
    assert arrived != sorted(arrived)
    assert max(Counter(arrived).values()) > 1


def test_append_time_goes_back_at_a_change_of_leader_and_appends_wait_for_it() -> None:
    scheduler, network, log = parts(trouble=0)
    producer = Producer(network, Process(scheduler, "p"))
    producer.send(log, "k", 1)
    scheduler.run(1_100)
    log.change_leader(-2_000, 500)
    producer.send(log, "k", 2)
    scheduler.run(1_590)
    assert log.end == 1
    scheduler.run(1_700)
    assert log.entries[1].at_ms < log.entries[0].at_ms


def test_a_process_dies_between_two_steps_and_freezes_whole() -> None:
    scheduler, _, _ = parts(trouble=0)
    seen: list[str] = []

    def body(name: str) -> Step:
        for number in range(3):
            seen.append(f"{name}{number}")
            yield 10

    dying, frozen = Process(scheduler, "dying"), Process(scheduler, "frozen")
    dying.crash_in = 3
    dying.spawn(body("d"))
    frozen.spawn(body("f"))
    scheduler.run(1_005)
    frozen.freeze()
    scheduler.run(2_000)
    assert sorted(seen) == ["d0", "d1", "f0"]
    assert not dying.alive
    frozen.thaw()
    scheduler.run(3_000)
    assert sorted(seen) == ["d0", "d1", "f0", "f1", "f2"]


def test_the_fence_refuses_an_older_writer_whole() -> None:
    changelog = Changelog(0)
    old, new = changelog.fence("a"), changelog.fence("b")
    assert not changelog.commit(old, 5, [(b"k", b"old")])
    assert changelog.commit(new, 3, [(b"k", b"new"), (b"gone", None)])
    assert changelog.parts == {b"k": b"new"}


def test_a_static_member_that_returns_takes_its_place_and_the_older_process_is_out() -> None:
    scheduler, _, _ = parts(trouble=0)
    group = Group(scheduler, 2, 6_000)
    first, second = Process(scheduler, "w"), Process(scheduler, "w")
    group.join(first)
    generation = group.generation
    group.join(second)
    assert group.beat(first) is None
    assert group.beat(second) == (0, 1)
    assert group.generation == generation


def test_a_commit_of_an_older_generation_is_refused() -> None:
    scheduler, _, _ = parts(trouble=0)
    group = QueueGroup(scheduler, 1, 6_000)
    worker = Process(scheduler, "w")
    group.join(worker)
    generation = group.generation
    assert group.commit(worker, generation, {0: Mark(1)})
    group.rebalance()
    assert not group.commit(worker, generation, {0: Mark(2)})
    assert group.committed[0] == Mark(1)


def test_over_some_seeds_everything_happens_that_the_promises_speak_of() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        world = World(seed)
        world.run()
        count(world, seen)
    wanted = (
        *(f"outcome {outcome}" for outcome in Outcome),
        *(f"run {state}" for state in (RunState.SUCCEEDED, RunState.WAITING, RunState.CANCELLED)),
        *(f"timer:{name}" for name in ("retry", "start_limit", "timeout")),
        "repeated output",
        "fence",
        "own attempt",
        "rules 2",
        "StallSuspected applied",
        "StallSuspected refused",
        "StepReleased applied",
        "EffectConfirmed applied",
    )
    assert [name for name in wanted if not seen[name]] == []


def count(world: World, seen: Counter[str]) -> None:
    for ref in world.checker.references:
        for outcome, number in ref.partition.counts.items():
            seen[f"outcome {outcome}"] += number
        for story in ref.stories.values():
            seen[f"run {story.state}"] += 1
            seen["own attempt"] += len(story.own_attempts)
        seen["fence"] += world.changelogs[ref.number].epoch - 1
        seen[f"rules {ref.partition.rules}"] += 1
        first = sum(len(outputs) for outputs in ref.outputs.values())
        sent = sum(logs[ref.number].end for logs in world.outputs.values())
        seen["repeated output"] += sent - first
        for entry in world.outputs["transitions"][ref.number].entries:
            change = entry.event.transition
            seen[change.cause] += 1
            seen[f"{change.cause} {change.outcome}"] += 1
