"""Effects: durable before, durable after, never done again once confirmed.

1. The intention (`EffectIntended`) is acknowledged by the log.
2. Effects of steps with policy `check` or `person` wait for the service's answer.
3. The lease must hold and nobody must have told this attempt to stop.
4. The act, under an idempotency key that is the same in every attempt.
5. The result (`EffectConfirmed`) is acknowledged by the log.

A stop between 4 and 5 does not interrupt them: an act that was begun is finished and confirmed if
it can be, so that its outcome is known to whoever takes over.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from dalsegno.schemas import values
from dalsegno.schemas.blob import references
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.events import AttemptEvent, EffectConfirmed, EffectIntended, StepProgressed
from dalsegno.schemas.outputs import EffectStatus, JournalEntry
from dalsegno.schemas.plan import UnknownPolicy
from dalsegno.streams.client.failures import Permanent, Unsafe
from dalsegno.streams.client.undo import DoneEffect
from dalsegno.streams.core.effects import effect_key

if TYPE_CHECKING:
    from dalsegno.streams.client.attempt import Attempt

_LOG = logging.getLogger("dalsegno.worker")
R = TypeVar("R")


class NotDone(enum.Enum):
    """What a check returns for an effect that was not done."""

    NOT_DONE = "not_done"


NOT_DONE = NotDone.NOT_DONE
CheckResult = object
"""The effect's result, or `NOT_DONE`; or an awaitable of that."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Given to an effect's function that has a parameter `effect`: what a receiver needs.

    `key` is the idempotency key, the same in every attempt; a receiver refuses an `epoch` lower
    than one that it has seen for the step.
    """

    name: str
    occurrence: int
    key: str
    epoch: int
    run_id: str
    step: str


class Gate(Protocol):
    """What effects need of the worker that runs them."""

    async def report(self, attempt: Attempt, event: AttemptEvent) -> None:
        """Returns when acknowledged; repeats until then, or raises `StepStopped`."""
        ...

    async def permission(self, attempt: Attempt, event: EffectIntended) -> None:
        """Returns when the service has agreed. Raises `StepStopped` if it has not."""
        ...

    def check_may_act(self, attempt: Attempt) -> None:
        """Raises `StepStopped` if the attempt was stopped or the lease does not hold."""
        ...

    async def in_thread(self, work: Callable[[], R]) -> R:
        """Run a plain function without blocking the loop."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an effect, with its place in the step."""

    info: Effect
    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    undo: str
    undo_input: object
    check: Callable[..., CheckResult] | None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def run(self) -> object:
        """Call the function; an async one gives a coroutine."""
        return _invoke(self.function, self.args, self.kwargs, self.info)


class Effects:
    """The effects and the save of one attempt."""

    def __init__(self, attempt: Attempt, gate: Gate) -> None:
        self._attempt = attempt
        self._gate = gate
        self._counts: Counter[str] = Counter()
        self._journal = {
            (entry.effect, entry.occurrence): entry for entry in attempt.handoff.effects
        }

    def call(
        self,
        name: str,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        undo: str,
        undo_input: object,
        check: Callable[..., CheckResult] | None,
    ) -> Call:
        """Take the next occurrence of `name`, in the order of the calls."""
        occurrence = self._counts[name]
        self._counts[name] += 1
        return self._call(name, occurrence, function, args, kwargs, undo, undo_input, check)

    def taking_back(
        self,
        effect: DoneEffect,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> Call:
        """The effect that takes back another one: its place is that one's, in every attempt."""
        name = f"undo:{effect.name}"
        return self._call(name, effect.occurrence, function, args, kwargs, "", None, None)

    async def was_done(
        self, effect: DoneEffect, call: Call, check: Callable[..., CheckResult] | None
    ) -> bool:
        """Asks `check` about an effect of unknown outcome. Without one it may have been done.

        Taking it back was begun before: it had been done then, or that was unknown.
        """
        begun = (call.info.name, call.info.occurrence) in self._journal
        if effect.done or check is None or begun:
            return True
        self._gate.check_may_act(self._attempt)
        return await self._found_by(check, call) is not NOT_DONE

    async def _found_by(self, check: Callable[..., CheckResult], call: Call) -> CheckResult:
        return await self._run(lambda: _invoke(check, call.args, call.kwargs, call.info), check)

    def _call(  # noqa: PLR0917 - one call of each kind, side by side above
        self,
        name: str,
        occurrence: int,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        undo: str,
        undo_input: object,
        check: Callable[..., CheckResult] | None,
    ) -> Call:
        handoff = self._attempt.handoff
        info = Effect(
            name=name,
            occurrence=occurrence,
            key=effect_key(handoff.recovery_key, name, occurrence),
            epoch=handoff.epoch,
            run_id=handoff.run_id,
            step=handoff.step,
        )
        return Call(info, function, args, kwargs, undo, undo_input, check)

    async def perform(self, call: Call) -> object:
        """The effect's result, from the journal or from doing it."""
        known = await self._begin(call)
        if known is not None:
            return known.value
        # A task of its own, which outlives a stop of the body: see the module's text.
        task = asyncio.get_running_loop().create_task(self._act(call))
        self._attempt.effects.add(task)
        task.add_done_callback(partial(self._ended, call.info.name))
        return await asyncio.shield(task)

    def _ended(self, effect: str, act: asyncio.Task[object]) -> None:
        attempt = self._attempt
        attempt.effects.discard(act)
        if attempt.stopped is None or act.cancelled():
            return
        if (error := act.exception()) is not None:
            # Its body is gone, and a stopped attempt reports nothing: else nobody would hear of it.
            _LOG.warning("effect %r of %s fails after its stop", effect, attempt.id, exc_info=error)

    def perform_here(
        self, call: Call, block: Callable[[Coroutine[None, None, object]], object]
    ) -> object:
        """As `perform`, with the act in this thread and the reports on the loop, through
        `block`.
        """
        known = cast("_Known | None", block(self._begin(call)))
        if known is not None:
            return known.value
        result = call.run()
        if inspect.isawaitable(result):
            result = block(_awaited(result))
        block(self._confirm(call, result))
        return result

    async def save(self, state: object) -> None:
        """Durable on return; the next attempt finds it in `saved`. A save is progress: the service
        takes a later one only with a higher counter.
        """
        attempt = self._attempt
        handoff = attempt.handoff
        packed = await self._packed(state)
        self._gate.check_may_act(attempt)
        attempt.progress += 1
        event = StepProgressed(
            run_id=handoff.run_id,
            step=handoff.step,
            epoch=handoff.epoch,
            progress=attempt.progress,
            save=packed,
        )
        await self._gate.report(attempt, event)

    async def _begin(self, call: Call) -> _Known | None:
        """Everything before the act. What is known already is not done."""
        entry = self._journal.get((call.info.name, call.info.occurrence))
        if entry is not None and entry.status is EffectStatus.CONFIRMED:
            large, result = self._attempt.large, values.unpack(entry.result)
            if references(entry.result):
                result = await self._gate.in_thread(lambda: large.whole(result))
            return _Known(result)
        policy = self._attempt.step.unknown
        if entry is not None:
            _check_can_resolve(call, entry, policy)
        self._gate.check_may_act(self._attempt)
        await self._intend(call, policy)
        check = call.check
        if entry is not None and policy is UnknownPolicy.CHECK and check is not None:
            found = await self._found_by(check, call)
            if found is not NOT_DONE:
                await self._confirm(call, found)
                return _Known(found)
        self._gate.check_may_act(self._attempt)
        return None

    async def _intend(self, call: Call, policy: UnknownPolicy) -> None:
        info = call.info
        event = EffectIntended(
            run_id=info.run_id,
            step=info.step,
            epoch=info.epoch,
            effect=info.name,
            occurrence=info.occurrence,
            key=info.key,
            undo=call.undo,
            undo_input=b"" if call.undo_input is None else await self._packed(call.undo_input),
        )
        if policy is UnknownPolicy.RETRY:
            await self._gate.report(self._attempt, event)
        else:
            await self._gate.permission(self._attempt, event)

    async def _packed(self, value: object) -> bytes:
        """A private value of the step; a large one is in the store on return.

        Raises `ValueRefusedError`, and as `Large.kept_bytes`.
        """
        large = self._attempt.large
        packed = large.pack(value)
        if not large.too_long(packed):
            return packed
        return await self._gate.in_thread(lambda: large.kept_bytes(packed))

    async def _act(self, call: Call) -> object:
        result = await self._run(call.run, call.function)
        await self._confirm(call, result)
        return result

    async def _run(self, work: Callable[[], object], function: Callable[..., object]) -> object:
        result = (
            work() if inspect.iscoroutinefunction(function) else await self._gate.in_thread(work)
        )
        return await result if inspect.isawaitable(result) else result

    async def _confirm(self, call: Call, result: object) -> None:
        info = call.info
        try:
            packed = await self._packed(result)
        except ValueRefusedError as error:
            raise Permanent(
                f"effect {info.name!r} was done, but its result cannot be kept: {error}",
                error_class="effect_result",
            ) from error
        event = EffectConfirmed(
            run_id=info.run_id,
            step=info.step,
            epoch=info.epoch,
            effect=info.name,
            occurrence=info.occurrence,
            result=packed,
        )
        await self._gate.report(self._attempt, event)


@dataclass(frozen=True, slots=True)
class _Known:
    value: object


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def _check_can_resolve(call: Call, entry: JournalEntry, policy: UnknownPolicy) -> None:
    """An effect that may have been done: by policy it goes to a person, or needs a check to be
    given.
    """
    if policy is UnknownPolicy.PERSON or (policy is UnknownPolicy.CHECK and call.check is None):
        raise Unsafe(
            f"effect {entry.effect!r} (occurrence {entry.occurrence}, key {entry.key}) was "
            "intended in epoch "
            f"{entry.epoch} and never confirmed",
            advice="find out whether it was done, then confirm or undo it",
            error_class="effect_unknown",
        )


def _free_names(function: Callable[..., object], positions: int) -> tuple[str, ...]:
    """Parameters that may still be given by keyword after `positions` positional arguments."""
    if inspect.ismethod(function):
        return _free_names(function.__func__, positions + 1)
    code = getattr(function, "__code__", None)
    if code is not None and not hasattr(function, "__wrapped__"):  # quick, for plain functions
        names: tuple[str, ...] = code.co_varnames
        ends = code.co_argcount + code.co_kwonlyargcount
        return (
            names[max(positions, code.co_posonlyargcount) : code.co_argcount]
            + names[code.co_argcount : ends]
        )
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return ()
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    free = [p.name for p in by_position[positions:] if p.kind is p.POSITIONAL_OR_KEYWORD]
    return (*free, *(p.name for p in parameters if p.kind is p.KEYWORD_ONLY))


def _invoke(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    info: Effect,
) -> object:
    """Call with what the caller gave, and `key`, `epoch`, `effect` where the function has room for
    them.
    """
    free = _free_names(function, len(args))
    known = {"key": info.key, "epoch": info.epoch, "effect": info}
    extra = {name: value for name, value in known.items() if name in free and name not in kwargs}
    return function(*args, **kwargs, **extra)
