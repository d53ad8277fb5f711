"""R062: after a reconnection everything looks connected, and nothing is consumed."""

from __future__ import annotations

import pytest
from tests.integration.doubling import flow
from tests.integration.engine.harness import Lab, working

from dalsegno.client import Client
from dalsegno.ops.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka

BOUNCES, RUNS = 3, 10


def test_a_broker_that_bounces_while_all_is_idle_leaves_engine_worker_and_client_at_work(
    own_lab: tuple[Lab, EmbeddedKafka],
) -> None:
    lab, broker = own_lab
    engine = lab.engine(fold="served")
    engine.wait_ready()
    client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
    with working(lab, flow), client:
        before = client.start(flow, {"amount": 0})
        assert client.wait(before, "60s").context == {"amount": 0, "doubled": 0}
        for _ in range(BOUNCES):
            broker.kill()
            broker.start()
        runs = client.start_many(flow, {f"after-{n}": {"amount": n} for n in range(RUNS)})
        ends = [client.wait(run_id, "120s") for run_id in runs]
    assert [end.context["doubled"] for end in ends if end.context] == [2 * n for n in range(RUNS)]
    assert engine.process.poll() is None
