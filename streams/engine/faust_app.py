"""The Faust app: its life cycle, consumer group and agents. Tables and web pages of its own are
off.
"""

from __future__ import annotations

import faust
from faust.tables.manager import TableManager

from dalsegno.streams.engine.security import faust_credentials
from dalsegno.streams.engine.settings import EngineSettings

_REQUEST_MARGIN_S = 0.5


class NoTables(TableManager):  # type: ignore[misc]
    """Faust has no table of ours. Its manager waits a second before it lets the app subscribe."""

    async def on_start(self) -> None:
        """Start at once: there is nothing to wait for."""
        await self._update_channels()
        await self.recovery.start()


class DisklessApp(faust.App):  # type: ignore[misc]
    """Keeps nothing on disk, so a full or read-only one is no matter."""

    def _create_directories(self) -> None:
        """Make none: Faust's would be empty, in whatever folder the process was started."""


def make_app(settings: EngineSettings) -> faust.App:
    """The app of one engine. It is started inside our own event loop, without Faust's worker."""
    session_s = settings.session_timeout_ms / 1_000
    servers = settings.bootstrap_servers.replace(",", ";")
    return DisklessApp(
        settings.group,
        broker=f"kafka://{servers}",
        broker_credentials=faust_credentials(settings),
        broker_client_id=settings.owner,
        broker_session_timeout=session_s,
        broker_heartbeat_interval=settings.heartbeat_interval_ms / 1_000,
        broker_rebalance_timeout=settings.rebalance_timeout_ms / 1_000,
        broker_request_timeout=max(session_s, settings.rebalance_timeout_ms / 1_000)
        + _REQUEST_MARGIN_S,
        broker_max_poll_interval=settings.poll_interval_max_ms / 1_000,
        consumer_group_instance_id=settings.name or None,
        # Positions are the tasks' own: a missing one is an error, never a jump.
        consumer_auto_offset_reset="none",
        consumer_max_fetch_size=4 << 20,
        consumer_metadata_max_age_ms=settings.metadata_age_max_ms,
        # Selects Faust's own assignor, which keeps co-partitioned topics together.
        table_standby_replicas=1,
        TableManager=NoTables,
        value_serializer="raw",
        key_serializer="raw",
        store="memory://",
        topic_disable_leader=True,
        topic_allow_declare=False,
        stream_wait_empty=False,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
