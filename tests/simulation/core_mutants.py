"""Deliberate bugs of the core: functions of it replaced by ones that are wrong."""

from __future__ import annotations

import importlib
import pkgutil
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
from tests.simulation.mutants import Mutant, replaced

from dalsegno.schemas.events import StepCompleted, StepFailed
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams import core
from dalsegno.streams.core import (
    attempts,
    completing,
    dispatch,
    journal,
    lifecycle,
    retry,
    routing,
    step_table,
    stepping,
)
from dalsegno.streams.core.clock import Clock
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.moment import ACCEPTED, APPLIED
from dalsegno.streams.core.outbox import Outbox
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.runstate import BACKING
from dalsegno.streams.core.timers import Timers

Bug = Callable[[], Any]


@contextmanager
def everywhere(function: Callable[..., Any], bug: Callable[..., Any]) -> Iterator[None]:
    """Replaces a function in every module of the core that has imported it, tables included."""
    for module in pkgutil.walk_packages(core.__path__, core.__name__ + "."):
        importlib.import_module(module.name)
    name = function.__name__
    with ExitStack() as stack:
        for module_name, module in list(sys.modules.items()):
            if not module_name.startswith(core.__name__) or module is None:
                continue
            if getattr(module, name, None) is function:
                stack.enter_context(patch.object(module, name, bug))
            for held in list(vars(module).values()):
                if isinstance(held, dict):
                    changed = with_bug(held, function, bug)
                    if changed:
                        stack.enter_context(patch.dict(held, changed))
        yield


def with_bug(table: dict[Any, Any], function: Callable[..., Any], bug: Any) -> dict[Any, Any]:
    """The entries of a table that hold the function, themselves or in a field, with the bug."""
    changed: dict[Any, Any] = {}
    for key, value in table.items():
        if value is function:
            changed[key] = bug
        elif isinstance(value, msgspec.Struct):
            for field in value.__struct_fields__:
                if getattr(value, field) is function:
                    changed[key] = msgspec.structs.replace(value, **{field: bug})
    return changed


def epoch_check_dropped() -> Any:
    """A report of an older epoch is taken for one of the current."""
    right = attempts.judge

    def judge(draft: Draft, event: Any, what: Any) -> Any:
        place = draft.plan.index.get(event.step)
        if place is not None and 0 < event.epoch < draft.peek(place).epoch:
            event = msgspec.structs.replace(event, epoch=draft.peek(place).epoch)
        return right(draft, event, what)

    return everywhere(right, judge)


def closed_epoch_completes() -> Any:
    """A completion counts although its attempt was superseded meanwhile."""
    right = attempts.judge

    def judge(draft: Draft, event: Any, what: Any) -> Any:
        ruled = right(draft, event, what)
        if isinstance(event, StepCompleted) and getattr(ruled, "reason", "") == "epoch_closed":
            return draft.plan.index[event.step]
        return ruled

    return everywhere(right, judge)


def timeout_resets() -> Any:
    """Progress starts the step's timeout again."""
    right = attempts.step_progressed

    def step_progressed(draft: Draft, event: Any) -> Any:
        ruling = right(draft, event)
        place = draft.plan.index.get(event.step)
        if ruling is APPLIED and place is not None and draft.row(place).live:
            step = draft.plan.steps[place]
            draft.row(place).due_ms = draft.now.live_from_now(step.timeout_ms)
        return ruling

    return everywhere(right, step_progressed)


def start_limit_ignored() -> Any:
    """A start counts however late it was appended."""
    right = attempts.step_started

    def step_started(draft: Draft, event: Any) -> Any:
        at_ms, draft.now.at_ms = draft.now.at_ms, 0
        try:
            return right(draft, event)
        finally:
            draft.now.at_ms = at_ms

    return everywhere(right, step_started)


def live_time_moves_without_tick() -> Any:
    """Every record moves live time."""
    right = Partition.apply

    def apply(self: Partition, record: Any) -> Any:
        clock = self._now.clock
        if clock.log_ms:
            clock.live_ms += max(0, record.at_ms - clock.log_ms)
        return right(self, record)

    return replaced(Partition, "apply", apply)


def log_time_goes_back() -> Any:
    """Log time is the last append time instead of the largest."""
    right = Partition.apply

    def apply(self: Partition, record: Any) -> Any:
        self._now.clock.log_ms = min(self._now.clock.log_ms, record.at_ms)
        return right(self, record)

    return replaced(Partition, "apply", apply)


def live_time_uncapped() -> Any:
    """A tick after a long silence moves live time by all of it."""
    right = Clock.live_now_ms
    return replaced(Clock, "live_now_ms", lambda self, cap_ms: right(self, 10**9))


def cancel_ignored_while_backing_off() -> Any:
    """A cancel is accepted and forgotten when a step waits for its retry."""
    right = lifecycle.run_cancelled

    def run_cancelled(draft: Draft, event: Any) -> Any:
        return ACCEPTED if draft.head.tally[BACKING] else right(draft, event)

    return everywhere(right, run_cancelled)


def delay_resets() -> Any:
    """Every failure waits like the first one."""
    right = retry.delay_ms
    return everywhere(
        right, lambda policy, run_id, step, epoch, failures: right(policy, run_id, step, epoch, 1)
    )


def delay_is_random() -> Any:
    """The jitter comes from the process instead of the run."""
    dice = random.SystemRandom()
    return everywhere(retry._jitter, lambda ceiling, *_: (ceiling + 1) // 2 + dice.randrange(50))


def retry_after_ignored() -> Any:
    """What the dependency asked for is not waited for."""
    right = routing.step_failed

    def step_failed(draft: Draft, event: StepFailed) -> Any:
        return right(draft, msgspec.structs.replace(event, retry_after_ms=None))

    return everywhere(right, step_failed)


def journal_loses_second_effect() -> Any:
    """Only the first effect of a step enters the journal."""
    right = Draft._adopt_effect

    def adopt(self: Draft, place: int, at: int, effect: Any) -> None:
        if at == 0:
            right(self, place, at, effect)

    return replaced(Draft, "_adopt_effect", adopt)


def stray_intent_forgotten() -> Any:
    """The intent of a superseded attempt is not kept."""
    return everywhere(journal._stray_intent, lambda draft, place, at, event, ruling: ruling)


def timers_not_restored() -> Any:
    """After a restore nothing is due any more."""
    return replaced(Timers, "load", lambda self, entries: None)


def needs_ignored() -> Any:
    """A join goes when the first of its needs has completed."""
    right = completing._complete

    def complete(draft: Draft, place: int, row: Any) -> None:
        for behind in draft.plan.dependents[place]:
            if draft.peek(behind).needs > 1:
                draft.row(behind).needs = 1
        right(draft, place, row)

    return everywhere(right, complete)


def inputs_hold_everything() -> Any:
    """A handoff carries more than the step may read."""
    right = dispatch._give_out

    def give_out(draft: Draft, place: int, row: Any) -> int:
        context = draft.run.context
        pack = context.pack

        def everything(self: Any, fields: Any) -> bytes:
            return pack(tuple(sorted({*fields, "applicant"})))

        with patch.object(type(context), "pack", everything):
            return right(draft, place, row)

    return everywhere(right, give_out)


def pause_ignored_by_retry() -> Any:
    """A retry that falls due is dispatched although its run is paused."""
    right = dispatch.dispatch_ready

    def dispatch_ready(draft: Draft) -> None:
        paused, draft.head.paused = draft.head.paused, False
        right(draft)
        draft.head.paused = paused

    return everywhere(right, dispatch_ready)


def lost_hits_a_running_step() -> Any:
    """A verdict "taken, never started" ends an attempt that did start."""
    running = step_table.MANAGED[step_table.RUNNING]
    rule = running[step_table.StepInput.SILENT]
    return patch.dict(running, {step_table.StepInput.LOST: rule})


def start_limit_by_one_clock() -> Any:
    """An epoch expires by log time, though the owner stood still."""
    right = dispatch._take_off

    def take_off(draft: Draft, place: int, row: Any, *rest: Any, **named: Any) -> None:
        right(draft, place, row, *rest, **named)
        row.due_ms, row.live = row.flight.start_by_ms, False

    def start_limit(draft: Draft, place: int, *_: Any) -> str:
        attempts.start_limit_passed(draft, place, draft.row(place))
        return "start_limit"

    return both(everywhere(right, take_off), everywhere(stepping._start_limit, start_limit))


def timeout_by_log_time() -> Any:
    """A step times out while the broker stands still."""
    right = attempts._run

    def run(draft: Draft, place: int, row: Any, step: Any) -> None:
        right(draft, place, row, step)
        row.due_ms, row.live = draft.now.log_ms + step.timeout_ms, False

    return everywhere(right, run)


def time_to_live_resets() -> Any:
    """A run that is resumed gets its time to live again."""
    right = lifecycle.run_resumed

    def run_resumed(draft: Draft, event: Any) -> Any:
        ruling = right(draft, event)
        if ruling.outcome is Outcome.APPLIED:
            draft.head.expires_ms = draft.now.log_ms + draft.head.ttl_ms
        return ruling

    return everywhere(right, run_resumed)


def index_starts_again() -> Any:
    """Outputs taken back leave a hole in the count of their channel."""

    def put(self: Outbox, channel: str, action: Any) -> Any:
        if channel == "queue.default" and self.counts.get(channel, 0) == 2:
            self.counts[channel] += 1
        return right(self, channel, action)

    right = Outbox.put
    return replaced(Outbox, "put", put)


@contextmanager
def both(first: Any, second: Any) -> Iterator[None]:
    with first, second:
        yield


CORE_MUTANTS = (
    Mutant("epoch check dropped", epoch_check_dropped),
    Mutant("superseded completion accepted", closed_epoch_completes),
    Mutant("step timeout that resets", timeout_resets),
    Mutant("start limit ignored", start_limit_ignored, 400),
    Mutant("live time moves without a tick", live_time_moves_without_tick),
    Mutant("log time goes back", log_time_goes_back),
    Mutant("live time without its cap", live_time_uncapped),
    Mutant("cancel ignored by a backing-off step", cancel_ignored_while_backing_off, 400),
    Mutant("retry delay resets", delay_resets),
    Mutant("random number in the fold", delay_is_random),
    Mutant("Retry-After ignored", retry_after_ignored),
    Mutant("journal loses an entry", journal_loses_second_effect),
    Mutant("intent of a superseded attempt forgotten", stray_intent_forgotten, 400),
    Mutant("timers not restored", timers_not_restored),
    Mutant("needs of a join ignored", needs_ignored),
    Mutant("handoff holds undeclared fields", inputs_hold_everything),
    Mutant("pause ignored by a retry", pause_ignored_by_retry),
    Mutant("lost verdict ends a running attempt", lost_hits_a_running_step),
    Mutant("start limit by one clock only", start_limit_by_one_clock),
    Mutant("step timeout by log time", timeout_by_log_time),
    Mutant("time to live resets on resume", time_to_live_resets, 400),
    Mutant("hole in a dense count", index_starts_again),
)
