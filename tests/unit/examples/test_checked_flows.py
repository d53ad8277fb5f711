"""What the examples' flows declare is what `dalsegno check` would have."""

from __future__ import annotations

import pytest
from examples.documents.flow import documents
from examples.order.flow import forward_only, order
from examples.reconciliation.flow import TTL_S, reconciliation, scaled
from examples.risk_control.flow import risk

from dalsegno.client import Flow

FLOWS = [documents, forward_only, order, reconciliation, risk]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_an_examples_runs_live_as_long_as_its_retries_may_take(flow: Flow) -> None:
    assert [each for each in flow.check() if each.code.startswith("ttl_")] == []


def test_the_scenario_of_an_outage_shortens_nothing_but_the_life_of_its_runs() -> None:
    assert scaled.plan() == reconciliation.plan()
    assert (scaled.name, scaled.version) == (reconciliation.name, reconciliation.version)
    assert scaled.ttl_ms == TTL_S * 1_000 < reconciliation.ttl_ms
    assert "ttl_short_with_retries" in {each.code for each in scaled.check()}
