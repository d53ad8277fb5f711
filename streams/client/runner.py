"""Runs the bodies of started attempts and reports how they ended, until the log has it.

All methods run on the worker's event loop unless they say otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar, cast

from dalsegno.schemas.blob import references
from dalsegno.schemas.errors import ContractError
from dalsegno.schemas.events import (
    AttemptEvent,
    EffectIntended,
    StepCompleted,
    StepFailed,
    StepReleased,
)
from dalsegno.schemas.outputs import Answer, AnswerType, Handoff
from dalsegno.streams.client.asked import Asked
from dalsegno.streams.client.attempt import Attempt, AttemptId, StopReason
from dalsegno.streams.client.context import BlockingContext, Context
from dalsegno.streams.client.context_versions import written_version
from dalsegno.streams.client.effects import Effects
from dalsegno.streams.client.errors import DeliveryFailed
from dalsegno.streams.client.failures import (
    FailureReport,
    Invalid,
    Permanent,
    StepStopped,
    UndeclaredWrite,
    report_of,
)
from dalsegno.streams.client.holding import Holding
from dalsegno.streams.client.outbox import Outbox
from dalsegno.streams.client.producer import OutRecord, Receipt
from dalsegno.streams.client.reporter import Reporter
from dalsegno.streams.client.schema_errors import FieldRefused
from dalsegno.streams.client.step import AsyncBody, Outputs, PlainBody
from dalsegno.streams.client.threads import Threads
from dalsegno.streams.client.writing import check_values, set_operations

_LOG = logging.getLogger("dalsegno.worker")
_RESEND_S = 0.2  # between two tries of a report that Kafka did not take
_ASK_AGAIN_S = (
    5.0  # an answer may be lost with a control partition's leader; a repeat is answered again
)
NOT_KEPT = frozenset({"too_many_effects", "undo_too_large", "result_too_large", "save_too_large"})
"""Reasons of a refusal by which the service's record of an attempt lacks what was reported."""
_MOOT = frozenset(StopReason) - {StopReason.SHUTDOWN}
"""Stops of attempts whose reports nobody takes any more, or whose step goes out again anyhow."""

R = TypeVar("R")


def not_kept(answer: Answer) -> str:
    """What such a refusal says."""
    return f"the service refused {answer.kind} ({answer.reason}): {answer.detail}"


class Runner:
    """Owns the tasks of running attempts. `lease_holds` is asked before every effect."""

    def __init__(
        self,
        holding: Holding[Attempt],
        outbox: Outbox,
        reporter: Reporter,
        lease_holds: Callable[[Attempt], bool],
        *,
        threads: int,
    ) -> None:
        self._holding = holding
        self._outbox = outbox
        self._reporter = reporter
        self._lease_holds = lease_holds
        self._loop = asyncio.get_running_loop()
        self._bodies = Threads(threads, "dalsegno-step")
        # Their own: a plain body waits for what it asks for, in a thread that others may need.
        self._helpers = Threads(threads, "dalsegno-effect")
        self._asked: dict[AttemptId, Asked] = {}
        self._releases: set[asyncio.Task[None]] = set()

    def start(self, attempt: Attempt) -> None:
        """Its `StepStarted` is acknowledged in time: run the body in a task that owns the
        attempt.
        """
        if attempt.stopped is not None or not self._lease_holds(attempt):
            self._holding.remove(attempt)
            return
        attempt.task = self._loop.create_task(self._run(attempt))
        # A task that is cancelled before its first turn runs nothing of it, nor what is at its end.
        attempt.task.add_done_callback(lambda _: self._holding.remove(attempt))

    def release(self, handoff: Handoff, partition: int, reason: str, detail: str = "") -> None:
        """Give back what was taken and will not be started."""
        event = StepReleased(
            run_id=handoff.run_id,
            step=handoff.step,
            epoch=handoff.epoch,
            reason=reason,
            detail=detail,
            source=self._reporter.source,
            sent_at_ms=self._reporter.wall_ms(),
        )
        task = self._loop.create_task(self._send_release(event, partition))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    def stop(self, attempt: Attempt, reason: StopReason) -> None:
        """The attempt must stop: it reports nothing from here on, whatever its body still does.

        It hears so once: a second time would cut off the wait for an effect that is being done.
        """
        if attempt.stopped is None:
            attempt.stopped = reason
        if attempt.task is not None and not attempt.cancelled:
            attempt.cancelled = True
            attempt.task.cancel()

    def answer(self, answer: Answer, offset: int = -1) -> bool:
        """Hand an answer to the effect that waits for it. False if none does. `offset`: of the
        event that it answers, -1 if it does not say.
        """
        asked = self._asked.get((answer.run_id, answer.step, answer.epoch))
        if asked is None or answer.kind != EffectIntended.__name__:
            return False
        return asked.hear(answer, offset)

    async def drain(self) -> None:
        """Wait for every running attempt and release; the caller bounds it."""
        while tasks := [a.task for a in self._holding.all() if a.task] + list(self._releases):
            await asyncio.wait(tasks)

    def close(self) -> None:
        """No further threads; those that run plain functions end with them or with the process."""
        self._bodies.close()
        self._helpers.close()

    # What effects need of the worker: `effects.Gate`.

    async def report(self, attempt: Attempt, event: AttemptEvent) -> None:
        await self._reported(attempt, event)

    async def _reported(self, attempt: Attempt, event: AttemptEvent) -> Receipt:
        record = self._reporter.record(self._reporter.stamp(event), attempt.partition)
        try:
            return await self._acknowledged(attempt, record)
        finally:
            # A stop cancels its wait wherever that is: no later failure would find it.
            if attempt.stopped in _MOOT:
                self._outbox.forget(record)

    async def _acknowledged(self, attempt: Attempt, record: OutRecord) -> Receipt:
        while True:
            try:
                return await self._outbox.send(record)
            except DeliveryFailed as error:
                if not error.retriable:
                    self._outbox.forget(record)
                    raise Permanent(
                        f"the report cannot be delivered: {error}", error_class=error.code
                    ) from error
                _LOG.warning("report of %s not acknowledged, sent again: %s", attempt.id, error)
                if attempt.stopped is not None:
                    raise StepStopped(attempt.stopped) from error
                await asyncio.sleep(_RESEND_S)

    async def permission(self, attempt: Attempt, event: EffectIntended) -> None:
        while attempt.id in self._asked:  # one at a time: an answer does not name its effect
            await asyncio.wait([self._asked[attempt.id].answer])
        asked = self._asked[attempt.id] = Asked(self._loop.create_future())
        try:
            while not asked.answer.done():
                asked.stands_at((await self._reported(attempt, event)).offset)
                await asyncio.wait([asked.answer], timeout=_ASK_AGAIN_S)
                self.check_may_act(attempt)
            answer = asked.answer.result()
        finally:
            del self._asked[attempt.id]
            asked.answer.cancel()
        if answer.answer is AnswerType.REFUSED and answer.reason in NOT_KEPT:
            raise Permanent(not_kept(answer), error_class=answer.reason)
        if answer.answer not in (AnswerType.ACCEPTED, AnswerType.DUPLICATE):
            attempt.stopped = attempt.stopped or StopReason.SUPERSEDED
            raise StepStopped(answer.reason)

    def check_may_act(self, attempt: Attempt) -> None:
        if attempt.stopped is None and not self._lease_holds(attempt):
            attempt.stopped = StopReason.LEASE
        if attempt.stopped is not None:
            raise StepStopped(attempt.stopped)
        _check_kept(attempt)

    async def in_thread(self, work: Callable[[], R]) -> R:
        return await self._helpers.run(work)

    async def _run(self, attempt: Attempt) -> None:
        try:
            await self._run_and_report(attempt)
        except asyncio.CancelledError:
            if attempt.stopped is None:
                raise  # the loop itself is being torn down
            _LOG.info("attempt %s stopped: %s", attempt.id, attempt.stopped)
        except Exception:  # noqa: BLE001 - the boundary of this task: nobody awaits it
            _LOG.exception("attempt %s ended without a report: it will be found silent", attempt.id)
        finally:
            # An effect that was begun is finished and confirmed before the slot is free again.
            if attempt.effects:
                await asyncio.wait(list(attempt.effects))
            self._holding.remove(attempt)

    async def _run_and_report(self, attempt: Attempt) -> None:
        try:
            outputs = await self._body(attempt)
            _check_kept(attempt)
            completed = await self._completed(attempt, outputs)
            if attempt.stopped is None:
                await self.report(attempt, completed)
        # The one broad boundary: whatever a body raises is a report, by the typed mapping. A body
        # that would end the process would end everybody's.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            if attempt.stopped is None:
                await self._fail(attempt, report_of(error))
            else:
                _unreported(attempt, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if attempt.stopped is not None or task is None or task.cancelling():
                raise
            # Nobody has told it to stop: it awaited something of its own that was cancelled.
            await self._fail(attempt, report_of(error))

    async def _body(self, attempt: Attempt) -> Outputs:
        effects = Effects(attempt, self)
        step = attempt.step
        if step.is_async:
            # Its loop is everybody's: what it may read is here before it begins.
            await self._fetch(attempt)
            return await cast(AsyncBody, step.function)(Context(attempt, effects))
        context = BlockingContext(attempt, effects, self._loop)
        body = partial(cast(PlainBody, step.function), context)
        work = asyncio.ensure_future(self._bodies.run(body))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A thread cannot be stopped, only told: its slot is taken until it returns.
            await asyncio.wait([work])
            if not work.cancelled() and (error := work.exception()) is not None:
                _unreported(attempt, error)
            raise

    async def _fetch(self, attempt: Attempt) -> None:
        handoff = attempt.handoff
        packed = [handoff.inputs, handoff.save or b"", handoff.wrote]
        packed += [part for each in handoff.undo for part in (each.result, each.undo_input)]
        if any(map(references, packed)):
            await self.in_thread(partial(attempt.large.fetch, packed))

    async def _completed(self, attempt: Attempt, outputs: Outputs) -> StepCompleted:
        """Raises `Invalid` for outputs that the step does not declare or that no context can
        hold. Large values are in the store on return; raises as `Large.kept`.
        """
        step, handoff = attempt.step, attempt.handoff
        if outputs is not None and not isinstance(outputs, Mapping):
            raise Invalid(
                f"step {step.name!r} returned {type(outputs).__name__}, not a mapping of fields"
            )
        written = dict(outputs or {})
        for field in written:
            if field not in step.writable:
                raise UndeclaredWrite(step.name, field, sorted(step.writable))
        try:
            if attempt.large.needs_store(written):
                check_values(written, step.schema)
                kept = await self.in_thread(partial(attempt.large.kept, written))
                written.update(kept)
            packed = set_operations(written, step.schema)
        except (ContractError, FieldRefused) as error:
            raise Invalid(
                f"step {step.name!r} returned a value that cannot be kept: {error}",
                error_class=type(error).__name__,
            ) from error
        return StepCompleted(
            run_id=handoff.run_id,
            step=handoff.step,
            epoch=handoff.epoch,
            ops=packed,
            progress=attempt.progress,
            context_schema_version=written_version(handoff, step.schema),
        )

    async def _fail(self, attempt: Attempt, failure: FailureReport) -> None:
        handoff = attempt.handoff
        event = StepFailed(
            run_id=handoff.run_id,
            step=handoff.step,
            epoch=handoff.epoch,
            failure_type=failure.failure_type,
            error_class=failure.error_class,
            message=failure.message,
            missing_fields=failure.missing_fields,
            advice=failure.advice,
            retry_after_ms=failure.retry_after_ms,
            dependency=failure.dependency,
            risk_flags=failure.risk_flags,
            progress=attempt.progress,
        )
        await self.report(attempt, event)

    async def _send_release(self, event: StepReleased, partition: int) -> None:
        record = self._reporter.record(event, partition)
        try:
            await self._outbox.send(record)
        except DeliveryFailed as error:
            # Not repeated: the start limit lets the epoch expire by itself.
            self._outbox.forget(record)
            _LOG.warning("release of %s/%s not acknowledged: %s", event.run_id, event.step, error)


def _check_kept(attempt: Attempt) -> None:
    """What the service does not know of cannot be skipped by the next attempt, nor taken back."""
    if attempt.not_kept:
        raise Permanent(attempt.not_kept, error_class="not_kept")


def _unreported(attempt: Attempt, error: BaseException) -> None:
    _LOG.warning("attempt %s raised after its stop", attempt.id, exc_info=error)
