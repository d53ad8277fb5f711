"""The closing table: what the books of the services and the log say, counted from them alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dalsegno.schemas.outputs import Escalation, Outcome, RunState, Transition
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.effects import effect_key, recovery_key
from dalsegno.streams.core.run_table import FINAL_RUNS
from examples.order.ledger import Entry, read
from examples.reconciliation.rules import corrections, ledger, statement
from examples.risk_control.log import read as read_topic

OUTLASTED = "outage_outlasted_ttl"


@dataclass(frozen=True, slots=True)
class Log:
    """What the topics say. `ended`: final state by account. `unknown`: keys of bookings of unknown
    outcome, as the packages showed them. `decided`: decisions about bookings by kind; `undo_again`:
    compensations that the outage held for too long, tried again. `refused`: decisions by reason.
    """

    ended: dict[str, RunState] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    decided: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    undo_again: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Amounts in cents. `faults`: sentences that say what is wrong; empty when all is right."""

    accounts: int
    reconciled: int
    taken_back: int
    asked: int
    retried: int
    compensated: int
    undo_again: int
    second_refused: int
    bookings: int
    undone: int
    closed_before: int
    unknown_done: int
    unknown_not_done: int
    bank: int
    books: int
    left_open: int
    faults: tuple[str, ...]

    @property
    def right(self) -> bool:
        return not self.faults


def gather(bootstrap: str, topics: Topics, folder: Path, accounts: Sequence[str]) -> Facts:
    """Read the topics and the books in `folder`."""
    log = read_log(
        [row.record for row in read_topic(bootstrap, topics.transitions)],
        [row.record for row in read_topic(bootstrap, topics.escalations)],
    )
    return judge(
        log, list(read(folder / "booking.jsonl")), list(read(folder / "ledger.jsonl")), accounts
    )


def read_log(transitions: Iterable[object], packages: Iterable[object]) -> Log:
    """Ends, packages and decisions from the records of two topics."""
    ended: dict[str, RunState] = {}
    decided, refused, undo_again = Counter[str](), Counter[str](), 0
    for each in transitions:
        if not isinstance(each, Transition):
            continue
        after = each.run_state_after
        if after is not None and after in FINAL_RUNS:
            ended.setdefault(each.run_id, after)
        if each.cause == "DecisionMade":
            if each.outcome is Outcome.APPLIED and each.step == "book":
                decided[each.reason.partition(":")[0]] += 1
            elif each.outcome is Outcome.APPLIED:
                undo_again += 1
            else:
                refused[each.reason] += 1
    asked, unknown = set(), set()
    for each in packages:
        if isinstance(each, Escalation) and each.reason == OUTLASTED and each.step == "book":
            asked.add(each.run_id)
            unknown |= {line.key for line in each.effect_lines if line.fate == "unknown"}
    return Log(ended, frozenset(asked), frozenset(unknown), decided, refused, undo_again)


def judge(
    log: Log, booked: Sequence[Entry], closed: Sequence[Entry], accounts: Sequence[str]
) -> Facts:
    """What the books say of each account, against what it should be by how its run ended."""
    done = {entry.key: entry for entry in booked if entry.what == "do"}
    undone = {entry.key for entry in booked if entry.what == "undo"}
    standing: dict[str, Counter[str]] = defaultdict(Counter)
    for key, entry in done.items():
        account, _, reference = entry.order.partition("/")
        if key not in undone:
            standing[account][reference] += entry.amount
    faults = [*_doubled(booked, "booking"), *_doubled(closed, "close"), *_strange(done, accounts)]
    balances = {entry.order.partition("/")[0]: entry.amount for entry in closed}
    bank = books = left = 0
    for account in accounts:
        right = sum(line.cents for line in statement(account))
        found = sum(line.cents for line in ledger(account)) + standing[account].total()
        state = log.ended.get(account)
        if fault := _wrong(account, state, dict(standing[account]), balances.get(account)):
            faults.append(fault)
        if state is RunState.SUCCEEDED and found != right:
            faults.append(f"{account}: the bank says {right}, the books {found}")
        bank, books = bank + right, books + found
        left += 0 if state is RunState.SUCCEEDED else right - sum(x.cents for x in ledger(account))
    if bank != books + left:
        faults.append(f"the bank says {bank}, the books {books}, left open {left}")
    return Facts(
        accounts=len(accounts),
        reconciled=sum(state is RunState.SUCCEEDED for state in log.ended.values()),
        taken_back=sum(state is RunState.COMPENSATED for state in log.ended.values()),
        asked=len(log.asked),
        retried=log.decided["retry"],
        compensated=log.decided["compensate"],
        undo_again=log.undo_again,
        second_refused=log.refused["already_decided"],
        bookings=len(done),
        undone=len(undone),
        closed_before=sum(entry.what == "close" for entry in booked),
        unknown_done=len(log.unknown & done.keys()),
        unknown_not_done=len(log.unknown - done.keys()),
        bank=bank,
        books=books,
        left_open=left,
        faults=tuple(faults),
    )


def _doubled(entries: Sequence[Entry], what: str) -> list[str]:
    """Acts done, or taken back, more than once."""
    acts = Counter(entry.order for entry in entries if entry.what == "do")
    keys = Counter((entry.what == "do", entry.key) for entry in entries)
    found = [f"{what} {act}: done {n} times" for act, n in acts.items() if n > 1]
    return found + [f"{what} under {key[1]}: {n} times" for key, n in keys.items() if n > 1]


def _strange(done: dict[str, Entry], accounts: Sequence[str]) -> list[str]:
    """Bookings under another key than the one that their step has in every attempt."""
    keys = {
        effect_key(recovery_key(account, "book"), "book", number): f"{account}/{each.reference}"
        for account in accounts
        for number, each in enumerate(corrections(account))
    }
    return [
        f"booking {entry.order} stands under a key that is not its own"
        for key, entry in done.items()
        if keys.get(key) != entry.order
    ]


def _wrong(
    account: str, state: RunState | None, stands: dict[str, int], balance: int | None
) -> str:
    """What is wrong with one account, or an empty text."""
    if state is RunState.SUCCEEDED:
        if stands != {each.reference: each.cents for each in corrections(account)}:
            return f"{account} is reconciled, and the book has {stands}"
        right = sum(line.cents for line in statement(account))
        return "" if balance == right else f"{account} was closed with {balance}, not {right}"
    if state is RunState.COMPENSATED:
        if stands or balance is not None:
            return f"{account} was taken back, and of it stand {stands}, balance {balance}"
        return ""
    return f"{account} ended {state}" if state is not None else f"{account} has no end"
