"""`python -m tests.integration.four_groups.worker_process NAME FOLDER GROUP QUEUES [BREAK]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.integration.four_groups.boundaries import Group
from tests.integration.four_groups.breaks import BREAKS
from tests.integration.four_groups.flows import flows_of
from tests.integration.four_groups.interrupting import in_worker

from dalsegno.client import Worker, WorkerConfig

# A freeze of some seconds costs the lease: then a worker abandons what it holds, and says hello.
SETTINGS = WorkerConfig(
    lease_ms=2_000, heartbeat_interval_ms=250, group_heartbeat_ms=500, stop_timeout_ms=3_000
)


def main(name: str, folder: str, group: str, queues: str, *breaks: str) -> None:
    in_worker(name, Path(folder))
    for each in breaks:
        BREAKS[each]()
    Worker(
        flows_of(Group(group)),
        name=f"{os.environ['DALSEGNO_PREFIX']}-{name}",
        queues=queues.split(","),
        concurrency=40,
        settings=SETTINGS,
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
