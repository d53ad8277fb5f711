"""A plan beyond the message limit, sent in parts: all of it is taken, or its start refused."""

from __future__ import annotations

import pytest
from tests.integration.engine.harness import Lab

from dalsegno.client import Client, Flow, RunRefused, RunState

pytestmark = pytest.mark.kafka
PARTITIONS = 1
STEPS = 100
GOAL = "g" * 20_000
"""A hundred of them are two megabytes: three parts."""


def large(name: str, *, last_queue: str) -> Flow:
    flow = Flow(name, ttl="30m")
    for number in range(STEPS):
        queue = last_queue if number == STEPS - 1 else "default"
        flow.step(name=f"s{number}", goal=GOAL, queue=queue, reads=[], writes=[])(lambda _: None)
    return flow


def test_a_refusal_of_the_last_part_is_told_to_who_waits_for_the_start(lab: Lab) -> None:
    lab.engine(fold="core").wait_ready()
    with Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix) as client:
        with pytest.raises(RunRefused, match="nowhere"):
            client.start(large("bad", last_queue="nowhere"), {}, timeout="60s")
        run = client.start(large("good", last_queue="default"), {}, timeout="60s")
        view = client.query(run)
        assert (view.state, len(view.steps)) == (RunState.RUNNING, STEPS)
