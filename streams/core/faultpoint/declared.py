"""What the policy declares about dependencies, found by the name of a fault point.

A fault point is a dependency, or a dependency and an error class: `payments`, `payments/timeout`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.control import Dependency, HealthCheck, Policy
from dalsegno.streams.core.faultpoint.settings import DEFAULTS, PointSettings

SEPARATOR: Final = "/"


def dependency_of(point: str) -> str:
    """The dependency that a fault point belongs to."""
    return point.partition(SEPARATOR)[0]


class Declared:
    """The declarations of one policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.defaults = DEFAULTS
        self._by_name = {each.name: each for each in policy.dependencies}
        self._settings: dict[str, PointSettings] = {}

    def get(self, point: str) -> Dependency | None:
        """What is declared about the dependency of a fault point."""
        return self._by_name.get(dependency_of(point))

    def checked(self, point: str) -> bool:
        """Whether a health check is declared, which must pass before a probe."""
        found = self.get(point)
        return found is not None and found.check is not HealthCheck.NONE

    def settings(self, point: str) -> PointSettings:
        """The numbers for a fault point."""
        name = dependency_of(point)
        known = self._settings.get(name)
        if known is None:
            known = self._settings[name] = self._made(self._by_name.get(name))
        return known

    def _made(self, found: Dependency | None) -> PointSettings:
        lease_ms = self.policy.quota_lease_ms
        made = msgspec.structs.replace(
            self.defaults, lease_ms=lease_ms, silent_ms=max(self.defaults.silent_ms, 2 * lease_ms)
        )
        if found is None:
            return made
        return msgspec.structs.replace(made, window_max=found.window_max)
