"""A service that tries a step again hears that somebody else has tried it after that."""

from __future__ import annotations

import pytest
from tests.integration.engine.harness import Lab, wait_for

from dalsegno.client import Client, Flow, ReportRefused

pytestmark = pytest.mark.kafka
PARTITIONS = 1
FLOW = Flow("overtaken", ttl="30m")
FLOW.observed(name="s", reads=[], writes=[])


def test_the_second_attempt_of_a_client_is_told_that_it_is_overtaken_elsewhere(lab: Lab) -> None:
    lab.engine(fold="core").wait_ready()
    with (
        Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix) as here,
        Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix) as elsewhere,
    ):
        run = here.start(FLOW, {}, timeout="60s")
        here.report(run, attempt=1).started("s")
        second = here.report(run, attempt=2)
        second.started("s")
        second.progressed("s")
        elsewhere.report(run, attempt=3).started("s")

        def told() -> ReportRefused | None:
            try:
                second.progressed("s")
            except ReportRefused as error:
                return error
            return None

        refused = wait_for("the news", told, limit_s=20)
        assert refused.reason == "newer_attempt"
        elsewhere.report(run, attempt=3).progressed("s")
