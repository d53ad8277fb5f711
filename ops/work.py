"""Runs a worker. Imports what a worker needs and no more: a restarted one is to be back soon."""

import logging
import os
from collections.abc import Sequence
from typing import Final

from dalsegno.ops.flow_loader import load_flow
from dalsegno.ops.logs import LogLevel, configure
from dalsegno.streams.client.worker import Worker

_LOG = logging.getLogger("dalsegno.worker")
_SERVERS: Final = "DALSEGNO_BOOTSTRAP_SERVERS"


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
    loaded = [load_flow(each) for each in flows]
    if not os.environ.get(_SERVERS):
        _LOG.warning(
            "no broker is named by %s, nor by a `dalsegno dev` in this folder: trying %s. "
            "A worker looks once: start it again when `dalsegno dev` says that the engine is ready",
            _SERVERS,
            bootstrap_servers,
        )
    Worker(
        loaded,
        bootstrap_servers=bootstrap_servers,
        prefix=prefix,
        name=name or None,
        concurrency=concurrency,
        queues=queues,
    ).run()
