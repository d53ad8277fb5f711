"""Which of our MAC keys signs for one partition: the first of the settings that its policy lists.

What another key signs would be a dead letter, a tick each second. An empty list names all keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from dalsegno.schemas.control import Policy
from dalsegno.streams.engine.settings import EngineSettings

log = structlog.get_logger(__name__)


class InForce(Protocol):
    """A fold, as far as its policy goes."""

    @property
    def policy(self) -> Policy:
        """The policy in force now: another object once it changes."""


class SigningKeys:
    """Chooses anew when the policy changes, and logs a choice that is not the settings' first."""

    def __init__(
        self, settings: EngineSettings, fold: Callable[[], InForce | None], partition: int
    ) -> None:
        """`fold()`: the partition's, None while it is not restored: nothing is signed before."""
        self._settings = settings
        self._fold = fold
        self._partition = partition
        self._policy: Policy | None = None
        self._key_id = ""

    @property
    def key_id(self) -> str:
        """The key that signs; empty while none of ours is in force."""
        fold = self._fold()
        if fold is None:
            return ""
        policy = fold.policy
        if policy is not self._policy:
            self._policy = policy
            self._key_id = self._settings.signing_key_in(policy.mac_keys)
            self._tell()
        return self._key_id

    @property
    def missing(self) -> bool:
        """Whether the partition is restored and none of our keys is in force."""
        return not self.key_id and self._policy is not None

    @property
    def notice(self) -> str:
        """What a person should know of it and do, or an empty text."""
        key_id, first = self.key_id, self._settings.signing_key
        if key_id == first or self._policy is None:
            return ""
        listed = ", ".join(self._policy.mac_keys)
        if key_id:
            return (
                f"{key_id} signs, since {first} is not in the policy's mac_keys ({listed}): put "
                f"{key_id} first in DALSEGNO_MAC_KEYS, or list {first} (`dalsegno policy apply`)"
            )
        return (
            f"no key in DALSEGNO_MAC_KEYS is in the policy's mac_keys ({listed}): nothing is "
            "signed, so no clock ticks and no deadline of a step is kept; add one of them to "
            "DALSEGNO_MAC_KEYS and restart the engine"
        )

    def sign(self, topic: str, partition: int, value: bytes) -> bytes | None:
        """The MAC of a record, or None while no key is in force."""
        key_id = self.key_id
        if not key_id:
            return None
        return self._settings.keyring.sign(key_id, topic, partition, value)

    def _tell(self) -> None:
        if self._key_id and self.notice:
            log.warning("another MAC key signs", partition=self._partition, why=self.notice)
        elif self.notice:
            log.error("no MAC key to sign with", partition=self._partition, why=self.notice)
