"""Waits by reading Kafka: until runs have ended, and until the engines have nothing left to do."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.integration.engine.harness import Lab, wait_for

from dalsegno.schemas.codec import decode
from dalsegno.schemas.outputs import RunState, Transition
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.logread import LogReader
from dalsegno.streams.engine.verify import Verifier

FINAL = {
    RunState.SUCCEEDED,
    RunState.FAILED,
    RunState.COMPENSATED,
    RunState.CANCELLED,
    RunState.EXPIRED,
}


class Ends:
    """Follows the transitions: how each run ended."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._reader = LogReader(lab.settings)
        self._next = dict.fromkeys(range(lab.partitions))
        self.ended: dict[str, RunState] = {}

    def look(self) -> None:
        for partition, start in self._next.items():
            for message in self._reader.read(self._lab.topics.transitions, partition, start):
                self._next[partition] = message.offset() + 1
                change = decode(message.value())
                assert isinstance(change, Transition)
                if change.run_state_after in FINAL:
                    self.ended[change.run_id] = change.run_state_after

    def wait(self, run_ids: Iterable[str], limit_s: float) -> set[str]:
        """Until all have ended; those that had not after `limit_s`."""
        missing, deadline = set(run_ids), time.monotonic() + limit_s
        while missing and time.monotonic() < deadline:
            self.look()
            missing -= self.ended.keys()
            time.sleep(0.5)
        return missing

    def close(self) -> None:
        self._reader.close()


def wait_quiet(lab: Lab, limit_s: float = 60.0) -> None:
    """Until every partition's checkpoint is at the end of its log: no event waits, none comes."""
    verifier = Verifier(lab.settings, Partition, lab.partitions)

    def quiet() -> bool:
        for partition in range(lab.partitions):
            saved = verifier.changelog(partition)
            position = Partition.restore(partition, saved.items()).position if saved else 0
            if position != lab.end(lab.topics.events, partition):
                return False
        return True

    try:
        wait_for("checkpoints at the end of the log", quiet, limit_s)
    finally:
        verifier.close()
