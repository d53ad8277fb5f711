"""The example flows as each group runs them, and the runs that it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from examples.documents import rules
from examples.documents.flow import documents
from examples.documents.sources import Document, generated
from examples.order.flow import forward_only, order
from examples.order.rules import SERVICES, Order, faults
from examples.order.rules import order as order_of
from examples.reconciliation.flow import reconciliation
from examples.risk_control.flow import risk
from examples.risk_control.rules import applicant
from tests.integration.four_groups.boundaries import Group

from dalsegno.client import Flow

CANARY: Final = "canary"
"""A field of every run that no step declares: it must be in no message to a consumer."""
_NUMBERS_MAX: Final = 100_000


class Start(NamedTuple):
    """A run to start."""

    flow: Flow
    run_id: str
    inputs: dict[str, object]


def variant(flow: Flow, ttl: str, queues: Mapping[str, str] | None = None) -> Flow:
    """The same steps under the same name, some of them in another queue."""
    found = Flow(flow.name, version=flow.version, **{**flow.options, "ttl": ttl})
    for step in flow:
        queue = (queues or {}).get(step.name, step.queue)
        found.add(replace(step, queue=queue))
    return found


QUEUES: Final[dict[Group, dict[str, tuple[str, ...]]]] = {
    group: {"worker-1": ("default", "back"), "worker-2": ("default", "back")} for group in Group
} | {Group.MACHINES: {"worker-1": ("default",), "worker-2": ("back",)}}
"""By worker: the queues that it takes from. Of two machines each has its own."""

_BEHIND: Final[Mapping[str, str]] = dict.fromkeys(
    ("validate_data", "check_fraud", "decide", "pay", "ship", "recall", "match", "close",
     "summarise"), "back"
) | dict.fromkeys(("extract", "format"), "default")  # fmt: skip
# The shortest that the timeouts along the plan allow.
_OUTLASTED: Final = "11s"


def flows_of(group: Group) -> list[Flow]:
    """Those that the group runs, in the order in which it starts runs of them."""
    orders = forward_only if group is Group.PEOPLE else order
    ttl = _OUTLASTED if group is Group.PEOPLE else "30m"
    return [
        variant(risk, "30m", _BEHIND),
        variant(orders, "30m", _BEHIND),
        variant(reconciliation, ttl, _BEHIND),
        variant(documents, "30m", _BEHIND),
    ]


def starts(seed: int, group: Group) -> Iterator[Start]:
    """Runs without end, one flow after the other; every run has a name of its own."""
    applications, orders, accounts, records = flows_of(group)
    bought, held = _orders(seed, group), _documents(seed, group)
    for number in range(_NUMBERS_MAX):
        who = applicant(number, seed + list(Group).index(group))
        yield _start(applications, str(who["application"]), {"applicant": who})
        what = next(bought)
        yield _start(orders, what.name, {"order": what.facts()})
        account = f"account-{group.name.lower()}-{seed}-{number:03d}"
        yield _start(accounts, account, {"account": account})
        document = next(held)
        yield _start(records, document.name, {"document": document.facts()})


def _start(flow: Flow, run_id: str, inputs: dict[str, object]) -> Start:
    return Start(flow, run_id, {**inputs, CANARY: f"{CANARY} of {run_id}"})


def _orders(seed: int, group: Group) -> Iterator[Order]:
    """Orders that meet no fault; some fault; or one that a person has to see to."""
    offset = list(Group).index(group) * 10_000
    for number in range(offset, offset + _NUMBERS_MAX):
        each = order_of(number, seed)
        met = [faults(seed, service, each.name) for service in SERVICES]
        undone = [faults(seed, service, each.name, undo=True) for service in SERVICES]
        refused = [found.refuses for found in met]
        calm = not any(found.refuses or found.busy for found in (*met, *undone))
        calm = calm and not any(found.loses_answer for found in (*met, *undone))
        match group:
            case Group.NORMAL | Group.MACHINES:
                wanted = calm
            case Group.FAILURE:
                wanted = not calm and not any(found.refuses for found in undone)
            case Group.PEOPLE:
                wanted = any(refused) and not any(found.refuses for found in undone)
        if wanted:
            yield each


def _documents(seed: int, group: Group) -> Iterator[Document]:
    """Documents that need nobody; or that state no conclusion, or have too long a title."""
    for number in range(_NUMBERS_MAX):
        each = generated(number, seed)
        count = len(each.pages)
        concluded = any(
            rules.concludes(at, count, page, closely=False)
            for at, page in enumerate(each.pages, start=1)
        )
        calm = concluded and len(rules.title(each.question)) <= rules.TITLE_CHARS_MAX
        if calm is not (group is Group.PEOPLE):
            yield each
