"""What a world of all parts is like: how often each thing goes wrong, and which come together.

Independent odds seldom bring the parts together; each mood but the first leans on one seam.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec
from tests.simulation.dependencies import NAMES
from tests.simulation.world import Odds

from dalsegno.schemas.events import FailureType

ANY: Final = "anything"
_FOR_GOOD: Final = (FailureType.PERMANENT, FailureType.PERMANENT, FailureType.TRANSIENT)
_SOON: Final = (FailureType.TRANSIENT, FailureType.DEPENDENCY)
_ASKING: Final = (FailureType.MISSING_INFO, FailureType.UNSAFE, FailureType.PERMANENT)
_MISSING: Final = (FailureType.MISSING_INFO, FailureType.MISSING_INFO, FailureType.PERMANENT)

MOODS: Final[dict[str, dict[str, Any]]] = {
    ANY: {},
    "outage and going back": {
        "outage": 0.9, "leaning": 1, "back": 1.0, "cancel": 0.5, "failure_types": _FOR_GOOD,
        "fail": 0.35, "risk": 0.0, "work_ms": 2_000, "pause": 0.6,
    },
    "freezes and outages": {
        "operator": 1.0, "outage": 0.9, "leaning": 1, "failure_types": _SOON, "fail": 0.35,
        "risk": 0.0, "cancel": 0.1, "poison": 0.1, "observed": 0.2,
    },
    "freezes and going back": {
        "operator": 1.0, "outage": 0.2, "back": 1.0, "failure_types": _FOR_GOOD, "fail": 0.35,
        "cancel": 0.3,
    },
    "people and outages": {
        "risk": 0.4, "inform": 0.6, "silent": 0.0, "outage": 0.9, "leaning": 1, "cancel": 0.0,
        "gated": 0.7, "failure_types": (*_ASKING, *_SOON), "fail": 0.35,
    },
    "people and going back": {
        "risk": 0.4, "silent": 0.1, "gated": 0.7, "back": 1.0, "failure_types": _ASKING,
        "fail": 0.35, "cancel": 0.4, "outage": 0.2, "work_ms": 2_000, "deaf": 0.9, "inform": 0.5,
    },
    "facts and going back": {
        "inform": 0.8, "back": 1.0, "cancel": 0.5, "risk": 0.0, "gated": 0.0, "fail": 0.5,
        "failure_types": _MISSING, "silent": 1.0, "outage": 0.2, "supplies": 0.6,
    },
    "people and facts": {
        "inform": 0.8, "back": 0.0, "cancel": 0.0, "fail": 0.5, "risk": 0.0, "outage": 0.2,
        "failure_types": (FailureType.UNSAFE, FailureType.PERMANENT), "silent": 0.0,
    },
    "pauses and lines": {
        "pause": 0.9, "operator": 0.8, "outage": 0.9, "leaning": 1, "failure_types": _SOON,
        "fail": 0.35, "cancel": 0.1, "gated": 0.7, "client_trouble": 0.35,
    },
}  # fmt: skip


QUEUED: Final = "a queue supplies"
"""Laid over any other mood: what no step supplies is asked of the policy's queue, and often."""
_QUEUED: Final[dict[str, Any]] = {
    "queued": 1.0, "fail": 0.5, "failure_types": _MISSING, "supplies": 0.3, "inform": 0.2,
    "pause": 0.4,
}  # fmt: skip


class CombinedOdds(Odds, frozen=True):
    """`outage`: of a dependency. `silent`: that nobody answers a package. `operator`: that one is
    at the console. `inform`: that a field moves from outside. `risk`: that a step needs approval.
    `gated`: that a plan has gates; `back`: that it goes back when it fails. `leaning`: how many
    services all steps lean on; `observed`: that a step is run by its service;
    `supplies`: that a step may be run again for a missing fact; `queued`: that the policy has a
    queue for what no step supplies.
    """

    outage: float = 0.0
    silent: float = 0.0
    operator: float = 0.0
    inform: float = 0.0
    risk: float = 0.0
    gated: float = 0.3
    back: float = 0.7
    leaning: int = len(NAMES)
    observed: float = 0.0
    supplies: float = 0.3
    queued: float = 0.4


def draw_odds(rng: Random, odds: Odds, mood: str, *, queued: bool) -> CombinedOdds:
    """The odds of a world in a mood; `queued`: with that one laid over it."""
    kinds = ((*odds.failure_types, *_ASKING), _FOR_GOOD, (*_SOON, FailureType.MISSING_INFO))
    named = {name: getattr(odds, name) for name in odds.__struct_fields__}
    named |= {
        "failure_types": rng.choice(kinds),
        "cancel": rng.choice((0.0, 0.1, 0.5)),
        "poison": rng.choice((0.0, 0.0, 0.05)),
        "work_ms": rng.choice((50, 600, 2_000)),
        "outage": rng.choice((0.2, 0.7, 0.9)),
        "silent": rng.choice((0.0, 0.1, 0.3, 1.0)),
        "operator": rng.choice((0.0, 0.7, 1.0)),
        "inform": rng.choice((0.0, 0.3, 0.5)),
        "risk": rng.choice((0.0, 0.1, 0.3)),
        "leaning": rng.choice((1, 1, 2, 3)),
        "observed": rng.choice((0.0, 0.0, 0.2)),
    }
    drawn = CombinedOdds(**(named | MOODS[mood] | (_QUEUED if queued else {})))
    if drawn.silent >= 1:
        # Nobody would take back a run that was put aside.
        drawn = msgspec.structs.replace(drawn, poison=0.0)
    return drawn
