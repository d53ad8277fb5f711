"""Folds a random log and prints digests of the log, the outputs, the captures and the state.

    python -m tests.property.digest_of_log SEED EVENTS

Run in several processes with other hash seeds, it must print the same.
"""

from __future__ import annotations

import random
import sys
from hashlib import sha256

import msgspec
from tests.property.plans import EXTENSIONS, PLANS
from tests.property.test_partition_promises import RUNS, PartitionMachine

from dalsegno.schemas.control import Verdict
from dalsegno.schemas.events import FailureType


def drive(machine: PartitionMachine, rng: random.Random) -> None:
    """One random rule of the machine."""
    pick, run_id = rng.randrange(2**20), rng.choice(RUNS)
    id_ = f"i{rng.randrange(40)}"
    kind, verdict = rng.choice(tuple(FailureType)), rng.choice(tuple(Verdict))
    rules = [
        lambda: machine.run_starts(run_id, rng.choice(PLANS), pick),
        lambda: machine.attempt_starts(pick),
        lambda: machine.attempt_completes(pick, False),
        lambda: machine.attempt_fails(pick, kind, None),
        lambda: machine.attempt_saves(pick),
        lambda: machine.attempt_is_released(pick),
        lambda: machine.effect_is_intended(pick, "card", 1),
        lambda: machine.effect_is_confirmed(pick, "card"),
        lambda: machine.monitor_suspects(pick, verdict, False),
        lambda: machine.information_comes(run_id, id_, pick),
        lambda: machine.plan_is_extended(run_id, id_, rng.choice(EXTENSIONS), True),
        lambda: machine.run_is_paused_resumed_or_cancelled(run_id, id_, pick),
        lambda: machine.event_is_repeated(pick),
        lambda: machine.time_passes(rng.choice((1, 900, 3_000, 6_000)), rng.randrange(3)),
        machine.append_time_goes_back,
    ]
    if machine.open:
        rules += [
            lambda: machine.some_attempts_go_right(pick),
            lambda: machine.attempt_acts_and_goes_right(pick),
            lambda: machine.attempt_starts_and_fails(pick, kind, None),
        ] * 3
    rng.choice(rules)()


def digests(seed: int, events: int) -> str:
    """What a fold of the seed's log comes to."""
    rng = random.Random(seed)
    machine = PartitionMachine()
    machine.runs_start()
    folding = machine.promises.folding
    captures = sha256()
    while len(folding.log) < events:
        drive(machine, rng)
        if rng.random() < 0.1:
            captures.update(msgspec.msgpack.encode(folding.partition.capture()))
    log = sha256(msgspec.msgpack.encode([(r.offset, r.at_ms, r.event) for r in folding.log]))
    outputs = sha256(b"".join(folding.outputs))
    state = folding.partition.digest()
    return f"{log.hexdigest()} {outputs.hexdigest()} {captures.hexdigest()} {state.hex()}"


if __name__ == "__main__":
    print(digests(int(sys.argv[1]), int(sys.argv[2])))
