"""The Faust transport of the engine: a consumer that delivers one batch per partition and fetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faust import App
from faust.transport.drivers import aiokafka as driver

from dalsegno.streams.engine.consumer import BatchConsumer
from dalsegno.streams.engine.ownership import Ownership


class BatchTransport(driver.Transport):  # type: ignore[misc]
    """Faust's aiokafka transport with our consumer."""

    def __init__(self, *args: Any, ownership: Ownership, **kwargs: Any) -> None:  # noqa: ANN401 - untyped upstream  # noqa: ANN401 - untyped upstream
        super().__init__(*args, **kwargs)
        self._ownership = ownership

    def create_consumer(self, callback: Callable[..., Any], **kwargs: Any) -> BatchConsumer:  # noqa: ANN401 - untyped upstream
        """Called by the app, once."""
        return BatchConsumer(self, callback=callback, ownership=self._ownership, **kwargs)


def install(app: App, ownership: Ownership) -> None:
    """Make the app use our transport. Before it is started."""
    app.transport = BatchTransport(app.conf.broker_consumer, app, ownership=ownership)
