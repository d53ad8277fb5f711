"""The worker's module: `dalsegno worker examples.workflow_trace.worker:flow ...:warm_up`."""

from __future__ import annotations

from examples.workflow_trace.flows import from_environment, warm_up

__all__ = ["flow", "warm_up"]

flow = from_environment()
