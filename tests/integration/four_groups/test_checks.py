"""The checks of the four groups on runs of the example flows in memory: right ones pass, and each
kind of tampering is found by the check that is there for it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import islice
from types import SimpleNamespace

import msgspec
import pytest
from tests.integration.four_groups import checks
from tests.integration.four_groups.boundaries import Group
from tests.integration.four_groups.flows import Start, starts
from tests.integration.four_groups.observed import Evidence, Given, Read, Sample, tell
from tests.unit.core.log import Log, handoffs, pack

from dalsegno.schemas import values
from dalsegno.schemas.codec import encode
from dalsegno.schemas.events import FailureType, RunStarted, StepCompleted, StepFailed
from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.core.actions import Audit, Dispatch

SEED = 7
FAILS_ONCE = {"score", "ship", "book", "format"}


class World:
    """Runs of all four flows, each step failing once where the set above says so."""

    def __init__(self) -> None:
        self.log = Log(checks.Owned(0))
        self.log.policy(queues=("default", "back"))
        self.reads: list[Read] = []
        self.samples: list[Sample] = []
        self._done: set[tuple[str, str, int]] = set()
        for each in islice(starts(SEED, Group.NORMAL), 8):
            self._run(each)

    def _run(self, each: Start) -> None:
        log, flow = self.log, each.flow
        log.put(
            RunStarted(
                run_id=each.run_id, flow=flow.name, flow_version=1, plan=flow.plan(),
                context=pack(each.inputs),
            )
        )  # fmt: skip
        while (view := log.partition.run(each.run_id)) is not None and view.kind == "run":
            given = self._next(each.run_id)
            if given is None:
                log.tick(2)
            else:
                self._step(given)

    def _next(self, run_id: str) -> Handoff | None:
        for each in handoffs(self.log.outputs):
            if each.run_id == run_id and (run_id, each.step, each.epoch) not in self._done:
                self._done.add((run_id, each.step, each.epoch))
                return each
        return None

    def _step(self, given: Handoff) -> None:
        log, who = self.log, (given.run_id, given.step, given.epoch)
        log.began(given.step, given.epoch, given.run_id)
        self.reads.append(Read(*who, given.run_version, sha256(given.inputs).hexdigest()))
        if given.step in FAILS_ONCE and given.epoch == 1:
            log.put(
                StepFailed(
                    run_id=given.run_id, step=given.step, epoch=1,
                    failure_type=FailureType.TRANSIENT, error_class="busy",
                )
            )  # fmt: skip
        else:
            ops = [["set", [name], {"by": who}] for name in given.writes]
            log.done(given.step, given.epoch, given.run_id, ops=ops)
        view = log.partition.run(given.run_id)
        assert view is not None
        context = values.unpack_map(view.context)
        self.samples.append(
            Sample("a client", given.run_id, view.run_version, log.partition.position, context,
                   view.secrets_omitted)
        )  # fmt: skip

    def evidence(self) -> Evidence:
        """What lies in Kafka, as it would lie there."""
        found = Evidence({}, {}, [], list(self.reads), {"heartbeats": [], "control": []})
        for record in self.log.records:
            found.events[0, record.offset] = record.event
        for output in self.log.outputs:
            action = output.action
            if isinstance(action, Audit):
                event = found.events[0, action.transition.cause_offset]
                tell(found.stories, output.sequence, action.transition, event)
            elif isinstance(action, Dispatch):
                found.given.append(given_as(action.queue, output.sequence, action.handoff))
        return found

    def judged(self, evidence: Evidence) -> set[str]:
        """The words of the checks that find something."""
        fold = self.log.partition
        assert isinstance(fold, checks.Owned)
        found = [
            *checks.newest(evidence, self.samples),
            *checks.minimal(evidence, "heartbeats", "control"),
            *checks.sufficient(evidence, [fold]),
        ]
        return {each.partition(":")[0] for each in found}


def given_as(queue: str, sequence: object, handoff: Handoff) -> Given:
    raw = encode(handoff)
    return Given(queue, sequence, handoff, len(raw), raw)  # type: ignore[arg-type]


def changed(evidence: Evidence, **fields: object) -> None:
    """Another last handoff than the fold put out; its attempt reads what it says."""
    each = evidence.given[-1]
    handoff = msgspec.structs.replace(each.handoff, **fields)
    evidence.given[-1] = given_as(each.queue, each.sequence, handoff)
    evidence.reads[-1] = evidence.reads[-1]._replace(
        run_version=handoff.run_version, digest=sha256(handoff.inputs).hexdigest()
    )


def with_more(evidence: Evidence, **fields: object) -> None:
    inputs = values.unpack_map(evidence.given[-1].handoff.inputs)
    changed(evidence, inputs=values.pack({**inputs, **fields}))


def an_older_version(evidence: Evidence) -> None:
    changed(evidence, run_version=evidence.given[-1].handoff.run_version - 1)


def an_older_value(evidence: Evidence) -> None:
    inputs = values.unpack_map(evidence.given[-1].handoff.inputs)
    changed(evidence, inputs=values.pack(dict.fromkeys(inputs, "as it was")))


def an_undeclared_field(evidence: Evidence) -> None:
    with_more(evidence, canary="canary of a run")


def words_without_need(evidence: Evidence) -> None:
    changed(evidence, context_schema="x" * 500)


def a_body_that_reads_something_else(evidence: Evidence) -> None:
    evidence.reads[-1] = evidence.reads[-1]._replace(digest="of another")


def a_handoff_that_is_not_there(evidence: Evidence) -> None:
    del evidence.given[-1]
    del evidence.reads[-1]


def a_return_that_leads_nowhere(evidence: Evidence) -> None:
    story = next(iter(evidence.stories.values()))
    at = next(i for i, (_, t) in enumerate(story.transitions) if t.cause == "StepCompleted")
    sequence, taken = story.transitions[at]
    own = tuple(change for change in taken.changes if change.step == taken.step)
    story.transitions[at] = sequence, msgspec.structs.replace(taken, changes=own)


def a_result_beyond_what_is_declared(evidence: Evidence) -> None:
    place, event = next(
        (place, event)
        for place, event in evidence.events.items()
        if isinstance(event, StepCompleted)
    )
    ops = pack([["set", ["undeclared"], 1]])
    evidence.events[place] = msgspec.structs.replace(event, ops=ops)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_runs_that_go_right_pass_every_check(world: World) -> None:
    evidence = world.evidence()
    assert world.judged(evidence) == set()
    assert len(evidence.given) > 40
    assert {each.handoff.epoch for each in evidence.given} == {1, 2}


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (an_older_version, "newest"),
        (an_older_value, "newest"),
        (a_body_that_reads_something_else, "newest"),
        (an_undeclared_field, "minimal"),
        (words_without_need, "minimal"),
        (a_result_beyond_what_is_declared, "minimal"),
        (a_handoff_that_is_not_there, "sufficient"),
        (a_return_that_leads_nowhere, "sufficient"),
    ],
)
def test_each_kind_of_tampering_is_found(
    world: World, tamper: Callable[[Evidence], None], found: str
) -> None:
    evidence = world.evidence()
    tamper(evidence)
    assert found in world.judged(evidence)


@pytest.mark.parametrize("fields", [{"run_version": 1}, {"context": {"applicant": "another"}}])
def test_a_client_that_is_told_something_older_is_found(
    world: World, fields: dict[str, object]
) -> None:
    story = world.evidence().stories[world.samples[3].run_id]
    assert list(checks.sampled(world.samples[3], story)) == []
    assert list(checks.sampled(world.samples[3]._replace(**fields), story)) != []


def test_what_waits_for_nobody_is_found(world: World) -> None:
    fold = SimpleNamespace(unowned=["a run: no deadline"])
    assert list(checks.sufficient(world.evidence(), [fold])) != []  # type: ignore[list-item]
