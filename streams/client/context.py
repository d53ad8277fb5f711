"""What a body sees of its attempt: its declared inputs, effects, progress, its save, and "stop".

`Context` is for async bodies, `BlockingContext` for plain functions, which run in a thread. Values
are the body's own copies: changing one in place changes nothing but the copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, TypeVar, overload

import msgspec

from dalsegno.schemas import values
from dalsegno.schemas.blob import references
from dalsegno.schemas.values import Value
from dalsegno.streams.client.context_versions import as_of_code
from dalsegno.streams.client.failures import (
    Invalid,
    MissingInfo,
    Permanent,
    StepStopped,
    UndeclaredRead,
)
from dalsegno.streams.client.large import has_blob, own_copy
from dalsegno.streams.client.undo import DoneEffect, Undo, undo_of

if TYPE_CHECKING:
    from dalsegno.streams.client.attempt import Attempt
    from dalsegno.streams.client.effects import CheckResult, Effects

T = TypeVar("T")
R = TypeVar("R")


class _Common(Mapping[str, Value]):
    """What both kinds of context share: a read-only mapping of the declared inputs, and more."""

    def __init__(self, attempt: Attempt, effects: Effects) -> None:
        self._attempt = attempt
        self._effects = effects
        self._unpacked: dict[str, Value] | None = None
        self._blobs: dict[str, Value] = {}

    def _inputs(self) -> dict[str, Value]:
        """The inputs; those with blobs in them are here by name alone until they are read."""
        if self._unpacked is None:
            handoff, step = self._attempt.handoff, self._attempt.step
            fields = values.unpack_map(handoff.inputs)
            if references(handoff.inputs):
                self._blobs = {name: value for name, value in fields.items() if has_blob(value)}
            here = {name: value for name, value in fields.items() if name not in self._blobs}
            self._unpacked = {**as_of_code(handoff, here, step.schema, step.secrets), **self._blobs}
        return self._unpacked

    def _read_blobs(self, field: str) -> None:
        """The field with its blobs read, for each body its own."""
        attempt, step = self._attempt, self._attempt.step
        whole = attempt.large.whole(self._blobs[field])
        found = as_of_code(attempt.handoff, {field: whole}, step.schema, step.secrets)
        inputs = self._inputs()
        inputs.pop(field)
        del self._blobs[field]
        inputs.update(found)

    def __getitem__(self, field: str) -> Value:
        """A copy of a declared input: a change in place never shows anywhere else. A large value
        is read from the store now by a plain function; for an async one it was before it began.

        Raises `UndeclaredRead` for a field that the step does not declare, and `MissingInfo` for a
        declared one that the run's context lacks (`get` too: never a None).
        Of a large value `BlobMissing`, `BlobCorrupt`, or `BlobStoreUnavailable`, if the store does
        not answer within the step's timeout.
        """
        inputs = self._inputs()
        if field in self._blobs:
            self._read_blobs(field)
        if field in inputs:
            return own_copy(inputs[field])
        step = self._attempt.step
        if field in step.reads:
            raise MissingInfo([field], f"the run's context has no field {field!r}")
        raise UndeclaredRead(step.name, field, sorted(step.reads))

    def __contains__(self, field: object) -> bool:
        return field in self._inputs()

    def __iter__(self) -> Iterator[str]:
        # Not the dictionary's own: to read a large value changes it.
        return iter(tuple(self._inputs()))

    def __len__(self) -> int:
        return len(self._inputs())

    def read(self, field: str, as_type: type[T]) -> T:
        """The input as a typed value (dataclass, TypedDict, msgspec class, ...). Raises
        `Invalid`.
        """
        value = self[field]
        try:
            return msgspec.convert(value, as_type)
        except msgspec.ValidationError as error:
            raise Invalid(f"input {field!r} is not a {as_type.__name__}: {error}") from error

    @property
    def run_id(self) -> str:
        return self._attempt.handoff.run_id

    @property
    def step(self) -> str:
        return self._attempt.handoff.step

    @property
    def epoch(self) -> int:
        """Number of this attempt; receivers of effects refuse lower ones than they have seen."""
        return self._attempt.handoff.epoch

    @property
    def key(self) -> str:
        """The recovery key: the same text in every attempt of this step."""
        return self._attempt.handoff.recovery_key

    @property
    def goal(self) -> str:
        return self._attempt.handoff.goal

    @property
    def run_version(self) -> int:
        """Version of the run that the inputs were read at."""
        return self._attempt.handoff.run_version

    @property
    def retries(self) -> int:
        """Attempts that were charged before this one."""
        return self._attempt.handoff.retries

    @property
    def traceparent(self) -> str:
        """The run's W3C trace context, or empty."""
        return self._attempt.trace

    @property
    def cancelled(self) -> bool:
        """Whether this attempt must stop: superseded, its run cancelled, or the lease ran out."""
        return self._attempt.stopped is not None

    @property
    def saved(self) -> Value:
        """What the attempt before kept with `save`, or None."""
        save = self._attempt.handoff.save
        return None if save is None else self._attempt.large.whole(values.unpack(save))

    @property
    def undo(self) -> Undo:
        """What a compensation has to take back. Raises `Permanent` in a step that is none."""
        handoff = self._attempt.handoff
        if not handoff.undoes:
            raise Permanent(f"step {handoff.step!r} is no compensation: it takes nothing back")
        return undo_of(handoff, self._attempt.step.schema, self._attempt.large)

    def progress(self) -> int:
        """Say that the step moves on; sent with the next heartbeat. Returns the counter."""
        self._attempt.progress += 1
        return self._attempt.progress


class Context(_Common):
    """For async bodies."""

    @overload
    async def effect(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        *args: object,
        undo: str = "",
        undo_input: object = None,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T: ...
    @overload
    async def effect(
        self,
        name: str,
        fn: Callable[..., T],
        *args: object,
        undo: str = "",
        undo_input: object = None,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T: ...
    async def effect(
        self,
        name: str,
        fn: Callable[..., object],
        *args: object,
        undo: str = "",
        undo_input: object = None,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> object:
        """Do something to the outside world at most once per (run, step, name, occurrence).

        `fn(*args, **kwargs)`, async or plain, is called unless an earlier attempt's result is in
        the journal, which is returned then. If it takes parameters `key`, `epoch` or `effect`, it
        gets the idempotency key, the epoch, or an `Effect` with both; the receiver must honour the
        key. The intention is durable before the call and the result after it. `undo` names the
        plan's step that takes it back, with `undo_input`. `check`, called with the same arguments,
        finds out whether an effect of unknown outcome was done: it returns the result or
        `NOT_DONE`.

        Raises what `fn` raises, `Unsafe` for an unknown outcome that only a person can resolve, and
        `StepStopped` if this attempt may not act any more.
        """
        call = self._effects.call(
            name, fn, args, kwargs, undo=undo, undo_input=undo_input, check=check
        )
        return await self._effects.perform(call)

    @overload
    async def take_back(
        self,
        effect: DoneEffect,
        fn: Callable[..., Awaitable[T]],
        *args: object,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T | None: ...
    @overload
    async def take_back(
        self,
        effect: DoneEffect,
        fn: Callable[..., T],
        *args: object,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T | None: ...
    async def take_back(
        self,
        effect: DoneEffect,
        fn: Callable[..., object],
        *args: object,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> object:
        """Take back one effect of `ctx.undo`, at most once: as `effect`, under a key of its own.

        Hand `effect.key` to `fn`, so that the receiver knows what to take back; of an effect that
        it has never seen it takes back nothing, and refuses that key from then on. `check`, called
        with the same arguments, finds out whether an effect of unknown outcome was done; when it
        says `NOT_DONE`, nothing is called and None is returned.
        """
        call = self._effects.taking_back(effect, fn, args, kwargs)
        if not await self._effects.was_done(effect, call, check):
            return None
        return await self._effects.perform(call)

    async def save(self, state: object) -> None:
        """Keep `state`, private to the step, for its next attempt; durable on return."""
        await self._effects.save(state)


class BlockingContext(_Common):
    """For plain functions: the same, but `effect` and `save` block the body's own thread."""

    def __init__(self, attempt: Attempt, effects: Effects, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(attempt, effects)
        self._loop = loop

    @overload
    def effect(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        *args: object,
        undo: str = "",
        undo_input: object = None,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T: ...
    @overload
    def effect(
        self,
        name: str,
        fn: Callable[..., T],
        *args: object,
        undo: str = "",
        undo_input: object = None,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T: ...
    def effect(
        self,
        name: str,
        fn: Callable[..., object],
        *args: object,
        undo: str = "",
        undo_input: object = None,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> object:
        """As `Context.effect`; a plain `fn` runs in the body's thread, an async one on the loop."""
        call = self._effects.call(
            name, fn, args, kwargs, undo=undo, undo_input=undo_input, check=check
        )
        if call.is_async:
            return self._block(self._effects.perform(call))
        return self._effects.perform_here(call, self._block)

    @overload
    def take_back(
        self,
        effect: DoneEffect,
        fn: Callable[..., Awaitable[T]],
        *args: object,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T | None: ...
    @overload
    def take_back(
        self,
        effect: DoneEffect,
        fn: Callable[..., T],
        *args: object,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> T | None: ...
    def take_back(
        self,
        effect: DoneEffect,
        fn: Callable[..., object],
        *args: object,
        check: Callable[..., CheckResult] | None = None,
        **kwargs: object,
    ) -> object:
        """As `Context.take_back`."""
        call = self._effects.taking_back(effect, fn, args, kwargs)
        if not self._block(self._effects.was_done(effect, call, check)):
            return None
        if call.is_async:
            return self._block(self._effects.perform(call))
        return self._effects.perform_here(call, self._block)

    def save(self, state: object) -> None:
        """As `Context.save`."""
        self._block(self._effects.save(state))

    def _block(self, work: Coroutine[None, None, R]) -> R:
        """Runs on the loop; the wait is this thread's. A stop must not look like a body's own
        error.
        """
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except CancelledError:
            raise StepStopped("this attempt must stop") from None
