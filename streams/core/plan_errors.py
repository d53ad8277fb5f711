"""Why a plan is refused."""

from __future__ import annotations

from typing import Literal

PlanCode = Literal[
    "bad_field",
    "bad_limits",
    "bad_name",
    "cycle",
    "duplicate_name",
    "no_steps",
    "overlapping_writes",
    "plan_too_large",
    "risky_step",
    "too_many_steps",
    "ttl_too_short",
    "unknown_compensation",
    "shared_compensation",
    "unknown_need",
    "unknown_queue",
]


class PlanRefused(Exception):  # noqa: N818 - a refusal, answered as such; no failure of ours
    """The plan's author has to change it; a retry of the same plan is refused again.

    `code` says what is wrong. `path` names the steps concerned: for a cycle in order, with the
    first one repeated at the end; for a path of needs in order. `detail` is a sentence that says
    what to do.
    """

    def __init__(self, code: PlanCode, path: tuple[str, ...], detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.path = path
        self.detail = detail
