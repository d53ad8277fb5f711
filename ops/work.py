"""Runs a worker. Imports what a worker needs and no more: a restarted one is to be back soon."""

from collections.abc import Sequence

from dalsegno.ops.flow_loader import load_flow
from dalsegno.ops.logs import LogLevel, configure
from dalsegno.streams.client.worker import Worker


def work(
    flows: Sequence[str],
    *,
    bootstrap_servers: str,
    prefix: str,
    name: str,
    concurrency: int,
    log_level: LogLevel,
    queues: Sequence[str] = (),
) -> None:
    """Run the steps of flows (`MODULE:FLOW`) until SIGTERM; finish or give back what is held.

    `queues`: only the steps that go there; none: all.
    """
    configure(log_level)
    Worker(
        [load_flow(each) for each in flows],
        bootstrap_servers=bootstrap_servers,
        prefix=prefix,
        name=name or None,
        concurrency=concurrency,
        queues=queues,
    ).run()
