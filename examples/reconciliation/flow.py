"""The flow: an account's statement and ledger are read, matched, corrected, and the day is closed.

(statement, entries) → match → book → close. `book` makes one booking for each difference, and is
taken back by `unbook`.
"""

from __future__ import annotations

from typing import Final

from dalsegno.client import Context, Flow, RetryPolicy
from examples.reconciliation import calls
from examples.reconciliation.rules import Correction, Line
from examples.reconciliation.rules import match as match_lines

NAME: Final = "reconciliation"
TTL_S: Final = 15
"""How long runs live in the scenario, where a minute of bookkeeping is a fraction of a second."""

_RETRY: Final = RetryPolicy(
    max_attempts=20, max_infra_attempts=200, initial_ms=200, max_ms=2_000, factor_percent=200
)
reconciliation: Final = Flow(NAME, version=1, ttl="2h")
reconciliation.on_stop(calls.services.close)
Outputs = dict[str, object]


@reconciliation.step(
    reads=["account"], writes=["statement"], depends_on=["bank"], timeout="2s", retry=_RETRY
)
async def statement(ctx: Context) -> Outputs:
    """Fetch what the bank says."""
    return {"statement": await calls.lines("bank", "statement", ctx.read("account", str))}


@reconciliation.step(
    reads=["account"], writes=["entries"], depends_on=["ledger"], timeout="2s", retry=_RETRY
)
async def entries(ctx: Context) -> Outputs:
    """Fetch what the ledger says."""
    return {"entries": await calls.lines("ledger", "entries", ctx.read("account", str))}


@reconciliation.step(
    needs=[statement, entries],
    reads=["statement", "entries"],
    writes=["corrections", "balance"],
    timeout="2s",
)
async def match(ctx: Context) -> Outputs:
    """Find the differences; the bank is right."""
    lines = ctx.read("statement", list[Line])
    found = match_lines(lines, ctx.read("entries", list[Line]))
    return {
        "corrections": [list(each) for each in found],
        "balance": sum(line.cents for line in lines),
    }


@reconciliation.step(
    needs=[match],
    reads=["account", "corrections"],
    writes=["booked"],
    depends_on=["booking"],
    compensate="unbook",
    timeout="4s",
    retry=_RETRY,
)
async def book(ctx: Context) -> Outputs:
    """Book each difference once, so that the ledger says what the bank says."""
    account, booked = ctx.read("account", str), 0
    for each in ctx.read("corrections", list[Correction]):
        await ctx.effect("book", calls.book, account, each.reference, each.cents)
        booked += each.cents
    return {"booked": booked}


@reconciliation.step(
    needs=[book],
    reads=["account", "balance"],
    writes=["closed"],
    depends_on=["ledger"],
    pivot=True,
    timeout="2s",
    retry=_RETRY,
)
async def close(ctx: Context) -> Outputs:
    """Close the day with the bank's balance."""
    account, balance = ctx.read("account", str), ctx.read("balance", int)
    answer = await ctx.effect("close", calls.close, account, balance)
    return {"closed": answer["booked"]}


@reconciliation.compensation(
    reads=["account"], writes=[], depends_on=["booking"], timeout="4s", retry=_RETRY
)
async def unbook(ctx: Context) -> None:
    """Take every booking back that was made, or may have been."""
    account = ctx.read("account", str)
    for effect in reversed(ctx.undo):
        await ctx.take_back(effect, calls.unbook, account, effect.key)


def _short_lived() -> Flow:
    """The same steps. How long a run lives goes with it from who starts it; workers need no other
    flow for that.
    """
    flow = Flow(NAME, version=1, ttl=f"{TTL_S}s")
    for step in reconciliation:
        flow.add(step)
    return flow


scaled: Final = _short_lived()
"""The flow as the scenario starts it: its outage has to be longer than the runs live."""
