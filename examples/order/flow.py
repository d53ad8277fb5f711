"""The flow: an order is reserved and paid, then shipped, then the customer is told.

(reserve, pay) → ship → notify. Each of the first three is taken back by a step of its own. A mail
cannot be taken back: from there the order only goes forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from dalsegno.client import Context, Flow, Invalid, RetryPolicy
from examples.order import calls

_RETRY: Final = RetryPolicy(
    max_attempts=15, max_infra_attempts=20, initial_ms=200, max_ms=1_500, factor_percent=200
)
Outputs = dict[str, object]


async def _do(ctx: Context, service: str) -> Outputs:
    answer: Outputs = await ctx.effect("do", calls.do, service, _of(ctx["order"]))
    return answer


async def _undo(ctx: Context, service: str) -> None:
    """Takes back what the service did, or may have done; what it never saw, it closes."""
    name = _of(ctx["order"])["name"]
    for effect in ctx.undo:
        await ctx.take_back(effect, calls.undo, service, str(name), effect.key)


def _of(order: object) -> Mapping[str, object]:
    if not isinstance(order, Mapping):
        raise Invalid("an order must be a map")
    return order


def declared(name: str, on_failure: Literal["person", "compensate"]) -> Flow:
    """The flow of that name; with `person` a step that fails for good waits for a decision."""
    flow = Flow(name, version=1, ttl="2h", on_failure=on_failure)
    flow.on_stop(calls.services.close)

    @flow.step(
        reads=["order"],
        writes=["reservation"],
        depends_on=["stock"],
        compensate="release",
        retry=_RETRY,
    )
    async def reserve(ctx: Context) -> Outputs:
        """Put the goods aside."""
        return {"reservation": await _do(ctx, "stock")}

    @flow.step(
        reads=["order"],
        writes=["payment"],
        depends_on=["payment"],
        compensate="refund",
        retry=_RETRY,
    )
    async def pay(ctx: Context) -> Outputs:
        """Charge the customer."""
        return {"payment": await _do(ctx, "payment")}

    @flow.step(
        needs=[reserve, pay],
        reads=["order"],
        writes=["parcel"],
        depends_on=["shipping"],
        compensate="recall",
        retry=_RETRY,
    )
    async def ship(ctx: Context) -> Outputs:
        """Hand the parcel to the carrier."""
        return {"parcel": await _do(ctx, "shipping")}

    @flow.step(
        needs=[ship],
        reads=["order"],
        writes=[],
        depends_on=["mail"],
        pivot=on_failure == "compensate",
        retry=_RETRY,
    )
    async def notify(ctx: Context) -> None:
        """Tell the customer."""
        await _do(ctx, "mail")

    @flow.compensation(reads=["order"], writes=[], depends_on=["stock"], retry=_RETRY)
    async def release(ctx: Context) -> None:
        """Put the goods back on the shelf."""
        await _undo(ctx, "stock")

    @flow.compensation(reads=["order"], writes=[], depends_on=["payment"], retry=_RETRY)
    async def refund(ctx: Context) -> None:
        """Give the customer the money back."""
        await _undo(ctx, "payment")

    @flow.compensation(reads=["order"], writes=[], depends_on=["shipping"], retry=_RETRY)
    async def recall(ctx: Context) -> None:
        """Have the carrier bring the parcel back."""
        await _undo(ctx, "shipping")

    return flow


order: Final = declared("order", "compensate")
forward_only: Final = declared("order-forward-only", "person")
