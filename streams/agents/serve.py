"""An engine with everything it has: agents, fold and monitors put together."""

from __future__ import annotations

from dalsegno.streams.agents.archive import archiver
from dalsegno.streams.agents.blobs import blob_sweeper
from dalsegno.streams.agents.erasing import eraser
from dalsegno.streams.agents.events import register
from dalsegno.streams.agents.faults import FaultsService
from dalsegno.streams.agents.liveness import LivenessService
from dalsegno.streams.agents.webhooks.service import webhooks
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.app import run_engine
from dalsegno.streams.engine.settings import EngineSettings


def serve(settings: EngineSettings) -> int:
    """Run an engine until a signal or an error; the exit code is
    `dalsegno.streams.engine.app.ExitCode`.
    """
    return run_engine(
        settings,
        register,
        folds=Partition,
        monitors=LivenessService(settings),
        actors=FaultsService(),
        services=(webhooks, archiver, blob_sweeper, eraser),
    )
