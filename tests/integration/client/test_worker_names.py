"""A worker's name is taken in its cluster: another one on the same machine is no hindrance."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab, working

from dalsegno.client import Flow, NameInUse, Worker
from dalsegno.ops.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka
FLOW = Flow("names", version=1, ttl="30m")


@FLOW.step(timeout="10m")
def nothing_to_do() -> None:
    """No run is started."""


def test_a_name_is_taken_in_its_cluster_and_in_no_other(
    kafka: EmbeddedKafka, own_lab: tuple[Lab, EmbeddedKafka], tmp_path: Path
) -> None:
    other, _ = own_lab
    here = Lab(kafka.bootstrap, other.prefix, tmp_path)
    here.create_topics()
    with working(here, FLOW, name="one-name"), working(other, FLOW, name="one-name"):
        spelt = here.bootstrap.replace("127.0.0.1", "localhost")
        again = Worker([FLOW], bootstrap_servers=spelt, prefix=here.prefix, name="one-name")
        with pytest.raises(NameInUse, match="one-name"):
            again.run()
