"""The start of a run: plan and first context are good, or the start is refused as a whole."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from dalsegno.schemas.events import RunStarted
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.core.context import Context, ContextError
from dalsegno.streams.core.context_versions import VERSION_MAX
from dalsegno.streams.core.moment import Moment, Ruling, refused
from dalsegno.streams.core.names import ID_CHARS_MAX
from dalsegno.streams.core.plan import PlanRefused
from dalsegno.streams.core.plan_store import PlanEntry
from dalsegno.streams.core.runstate import GROUPS, IDLE, Run, RunHead

_encode = msgspec.msgpack.Encoder().encode


def start_digest(event: RunStarted, plan_digest: bytes) -> bytes:
    """What makes two starts the same: everything but who sent it, when, and where answers go."""
    return blake2b(
        _encode(
            (
                event.flow,
                event.flow_version,
                plan_digest,
                event.context,
                event.context_schema,
                event.context_schema_version,
                event.ttl_ms,
                event.risk_flags,
                event.more,
            )
        ),
        digest_size=16,
    ).digest()


def source_digest(event: RunStarted) -> bytes:
    """The digest of a start whose plan may not be valid."""
    source = blake2b(_encode(event.plan), digest_size=32).digest()
    return start_digest(event, source)


def begin(now: Moment, event: RunStarted, trace: str) -> Run | Ruling:
    """A new run, none of whose steps is ready yet; or why it is refused."""
    if event.ttl_ms <= 0:
        return refused("bad_ttl", f"a time to live of {event.ttl_ms} ms")
    for name in (event.flow, event.context_schema):
        if len(name) > ID_CHARS_MAX:
            return refused("bad_flow", f"a name of {len(name)} characters, {ID_CHARS_MAX} may be")
    if fault := _schema_fault(event):
        return refused("bad_schema_version", fault)
    try:
        entry, source = now.plans.compiled(event.plan, now.policy, event.ttl_ms)
        context = Context.create(event.context, now.policy)
    except PlanRefused as error:
        return refused(error.code, error.detail)
    except ContextError as error:
        return refused("bad_context", str(error))
    return Run(
        event.run_id,
        _head(now, event, trace, start_digest(event, source), entry),
        entry,
        list(entry.rows),
        context,
    )


def _schema_fault(event: RunStarted) -> str:
    """Why no code could ever read the first context by its version; 0 says that there is none."""
    version = event.context_schema_version
    least = 1 if event.context_schema else 0
    if least <= version <= VERSION_MAX:
        return ""
    named = f" of context schema {event.context_schema!r}" if event.context_schema else ""
    return f"context_schema_version: {version}{named}; a schema version is a number from 1"


def _head(now: Moment, event: RunStarted, trace: str, digest: bytes, entry: PlanEntry) -> RunHead:
    tally = [0] * GROUPS
    tally[IDLE] = len(entry.rows)
    return RunHead(
        flow=event.flow,
        flow_version=event.flow_version,
        state=RunState.RUNNING,
        run_version=0,
        start_digest=digest,
        started_ms=now.log_ms,
        expires_ms=now.log_ms + event.ttl_ms,
        ttl_ms=event.ttl_ms,
        left=entry.plan.forward_count,
        tally=tally,
        reply_to=event.reply_to,
        trace=trace,
        context_schema=event.context_schema,
        context_schema_version=event.context_schema_version,
        plan_open=event.more,
    )
