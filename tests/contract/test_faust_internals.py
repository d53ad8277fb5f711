"""What we build on inside Faust and aiokafka (docs/adr/0001): fails when a new version changes it.

Sources are compared by digest where we replaced a method's body or rely on its steps; signatures
and attributes where we call or set them. After an upgrade: read the change, adapt, then renew the
digest with `python -m tests.contract.test_faust_internals`.
"""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Callable
from importlib.metadata import version

import aiokafka
import faust
import pytest
from aiokafka.consumer import fetcher, group_coordinator, subscription_state
from faust.app.base import App
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport import conductor
from faust.transport import consumer as faust_consumer
from faust.transport.drivers import aiokafka as driver
from faust.types import ConsumerMessage
from mode.threads import WorkerThread

from dalsegno.streams.engine import connections, consumer, faust_app, transport


def digest(source: Callable[..., object]) -> str:
    """Of a function's source, whatever its indentation."""
    text = textwrap.dedent(inspect.getsource(source))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


RELIED_ON: dict[str, Callable[..., object]] = {
    "faust.Transport.create_consumer": driver.Transport.create_consumer,
    "faust.Consumer._new_consumer_thread": driver.Consumer._new_consumer_thread,
    "faust.Consumer._drain_messages": faust_consumer.Consumer._drain_messages,
    "faust.Consumer.perform_seek": faust_consumer.Consumer.perform_seek,
    "faust.Consumer.on_partitions_revoked": faust_consumer.Consumer.on_partitions_revoked,
    "faust.Consumer.on_partitions_assigned": faust_consumer.Consumer.on_partitions_assigned,
    "faust.Consumer.on_stop": driver.Consumer.on_stop,
    "faust.Fetcher._fetcher": faust_consumer.Fetcher._fetcher.fun,
    "faust.Thread._create_worker_consumer": driver.AIOKafkaConsumerThread._create_worker_consumer,
    "faust.Thread.on_start": driver.AIOKafkaConsumerThread.on_start,
    "faust.WorkerThread.__init__": WorkerThread.__init__,
    "faust.WorkerThread.stop": WorkerThread.stop,
    "faust.App._on_partitions_revoked": App._on_partitions_revoked,
    "faust.App._on_partitions_assigned": App._on_partitions_assigned,
    "faust.App._stop_consumer": App._stop_consumer,
    "faust.Conductor._update_tp_index": conductor.Conductor._update_tp_index,
    "faust.TableManager.on_start": TableManager.on_start,
    "faust.TableManager._update_channels": TableManager._update_channels,
    "faust.Recovery._resume_streams": Recovery._resume_streams,
    "aiokafka.Connection.send": connections._send,
    "aiokafka.Fetcher._fetch_requests_routine": fetcher.Fetcher._fetch_requests_routine,
    "aiokafka.Fetcher.close": fetcher.Fetcher.close,
    "aiokafka.Subscription.fetch_context": (subscription_state.SubscriptionState.fetch_context),
    "aiokafka.GroupCoordinator._send_req": group_coordinator.GroupCoordinator._send_req,
    "aiokafka.GroupCoordinator._do_heartbeat": group_coordinator.GroupCoordinator._do_heartbeat,
    "aiokafka.GroupCoordinator.check_errors": group_coordinator.GroupCoordinator.check_errors,
    "aiokafka.GroupCoordinator._maybe_leave_group": (
        group_coordinator.GroupCoordinator._maybe_leave_group
    ),
}

DIGESTS: dict[str, str] = {
    "faust.Transport.create_consumer": "9eb4f22bbf3f",
    "faust.Consumer._new_consumer_thread": "8fd0d41b1514",
    "faust.Consumer._drain_messages": "8f35dd7a1114",
    "faust.Consumer.perform_seek": "2b4ceebd23de",
    "faust.Consumer.on_partitions_revoked": "652177e770ee",
    "faust.Consumer.on_partitions_assigned": "c07feb1175f7",
    "faust.Consumer.on_stop": "017029bcd2b6",
    "faust.Fetcher._fetcher": "64ea6297f5a0",
    "faust.Thread._create_worker_consumer": "c179c0bdb975",
    "faust.Thread.on_start": "675d03707bbe",
    "faust.WorkerThread.__init__": "9cd56c313cc6",
    "faust.WorkerThread.stop": "21138e41ad96",
    "faust.App._on_partitions_revoked": "c1abd58dcb37",
    "faust.App._on_partitions_assigned": "c9c5485eb273",
    "faust.App._stop_consumer": "96573acf5f04",
    "faust.Conductor._update_tp_index": "41331c63e985",
    "faust.TableManager.on_start": "b82e759be50c",
    "faust.TableManager._update_channels": "c43fe8c0812b",
    "faust.Recovery._resume_streams": "fbe0f747b84c",
    "aiokafka.Connection.send": "360d12e20e64",
    "aiokafka.Fetcher._fetch_requests_routine": "12dc901a1e4a",
    "aiokafka.Fetcher.close": "eb8e175ce6f8",
    "aiokafka.Subscription.fetch_context": "88fca759b6e7",
    "aiokafka.GroupCoordinator._send_req": "ca4ba17474e1",
    "aiokafka.GroupCoordinator._do_heartbeat": "5628cb32b3d2",
    "aiokafka.GroupCoordinator.check_errors": "c67ee34a37d9",
    "aiokafka.GroupCoordinator._maybe_leave_group": "7bc230e3f4dc",
}

OVERRIDDEN = [
    (transport.BatchTransport, driver.Transport, "create_consumer"),
    (consumer.BatchConsumer, driver.Consumer, "_new_consumer_thread"),
    (consumer.BatchConsumer, driver.Consumer, "_drain_messages"),
    (consumer.BatchConsumer, driver.Consumer, "perform_seek"),
    (consumer.BatchConsumer, driver.Consumer, "on_partitions_revoked"),
    (consumer.BatchConsumer, driver.Consumer, "on_partitions_assigned"),
    (consumer.BatchConsumer, driver.Consumer, "on_stop"),
    (consumer.ConsumerThread, driver.AIOKafkaConsumerThread, "_create_worker_consumer"),
    (consumer.ConsumerThread, driver.AIOKafkaConsumerThread, "on_start"),
    (consumer.ConsumerThread, driver.AIOKafkaConsumerThread, "Worker"),
    (consumer.DaemonThread, WorkerThread, "stop"),
    (consumer.BatchMessage, ConsumerMessage, "on_final_ack"),
    (faust_app.NoTables, TableManager, "on_start"),
    (faust_app.DisklessApp, faust.App, "_create_directories"),
]


def test_the_versions_are_those_that_were_read() -> None:
    assert version("faust-streaming") == "0.15.3"
    assert version("aiokafka") == "0.14.0"
    assert faust.__version__.startswith("0.15.3")


@pytest.mark.parametrize("name", RELIED_ON)
def test_upstream_source_is_what_was_read(name: str) -> None:
    assert digest(RELIED_ON[name]) == DIGESTS[name], (
        f"{name} changed upstream: read it against docs/adr/0001 and renew the digest"
    )


@pytest.mark.parametrize(("ours", "theirs", "name"), OVERRIDDEN)
def test_what_we_override_exists_upstream(ours: type, theirs: type, name: str) -> None:
    assert name in vars(ours)
    assert hasattr(theirs, name)


async def test_private_attributes_of_the_client_exist() -> None:
    client = aiokafka.AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    assert {"_isolation_level", "_subscription", "_coordinator", "_fetcher"} <= set(vars(client))
    assert "self._fetch_task = " in inspect.getsource(fetcher.Fetcher)
    subscription = client._subscription
    assert subscription.subscription is None
    assert subscription.reassignment_in_progress in (True, False)
    await client.stop()


def test_the_coordinator_keeps_what_we_read_and_set() -> None:
    source = inspect.getsource(group_coordinator.GroupCoordinator)
    for name in ("self.generation", "self.coordinator_id", "self._group_instance_id"):
        assert f"{name} = " in source


if __name__ == "__main__":
    for relied_on, function in RELIED_ON.items():
        print(f'    "{relied_on}": "{digest(function)}",')
