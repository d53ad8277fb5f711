"""Which of our MAC keys signs what a command appends: as engines choose theirs, by the policy."""

from dalsegno.ops.kafka.reader import Reader, ReadError
from dalsegno.streams.core.partition_parts import PARTITION_KEY, read_own_part
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.engine.settings import EngineSettings

_TAIL = 2_000
"""Each checkpoint saves the partition's own part, so the last one is near the end."""


class NoKeyError(Exception):
    """Control kinds need a MAC, and the settings have no key to make one that would be taken."""

    def __init__(self, listed: tuple[str, ...] = ()) -> None:
        """`listed`: the keys in force, where none of ours is among them."""
        super().__init__(
            f"no key in DALSEGNO_MAC_KEYS is in the policy's mac_keys ({', '.join(listed)}), so "
            "nothing would be taken: add one of them"
            if listed
            else "no MAC key: set DALSEGNO_MAC_KEYS as `id:hex` (as the engines have it)"
        )


def key_in_force(settings: EngineSettings, reader: Reader, partition: int) -> str:
    """The first of our keys that the policy of a partition lists, by the last checkpoint; our first
    before there is one. Raises NoKeyError, ReadError, BrokerRefused.
    """
    if not settings.mac_keys:
        raise NoKeyError
    own = _own_part(reader, settings.topics.runs_changelog, partition)
    if own is None:
        return settings.signing_key
    try:
        listed = read_own_part(partition, own).policy.mac_keys
    except StateCorrupt as error:
        raise ReadError(f"{error}: use the release that the engines have") from error
    key = settings.signing_key_in(listed)
    if not key:
        raise NoKeyError(listed)
    return key


def _own_part(reader: Reader, topic: str, partition: int) -> bytes | None:
    first, end = reader.bounds(topic, partition)
    tail = max(first, end - _TAIL)
    for start in (tail, first) if tail > first else (first,):
        found = [
            each.value
            for each in reader.read(topic, partition, start)
            if each.key == PARTITION_KEY and each.value is not None
        ]
        if found:
            return found[-1]
    return None
