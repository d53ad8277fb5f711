"""Records of control kinds with their MAC, for the events and for the faults topic."""

from __future__ import annotations

from dalsegno.schemas import headers
from dalsegno.schemas.codec import encode
from dalsegno.schemas.control import ControlEvent, PartitionControl, RunControl
from dalsegno.schemas.faults import PointControl
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.errors import NotSignedError


class Signer:
    """Signs for one topic. `partitions`: how many it has."""

    def __init__(self, topic: str, partitions: int, keyring: Keyring) -> None:
        self._topic = topic
        self._partitions = partitions
        self._keyring = keyring

    def record(self, event: ControlEvent, key_id: str) -> OutRecord:
        """The record of a control event about a partition, a run or a fault point.

        Raises `NotSignedError` without a key.
        """
        if not key_id:
            raise NotSignedError
        if isinstance(event, PartitionControl):
            partition, key = event.partition, b"%d" % event.partition
        elif isinstance(event, RunControl | PointControl):
            about = event.run_id if isinstance(event, RunControl) else event.fault_point
            partition, key = partition_for(about, self._partitions), about.encode()
        else:
            raise TypeError(f"{type(event).__name__} is about no partition, run or fault point")
        value = encode(event)
        mac = self._keyring.sign(key_id, self._topic, partition, value)
        return OutRecord(self._topic, partition, key, value, [(headers.MAC, mac)])
