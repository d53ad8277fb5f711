"""A request whose outcome is unknown is repeated as what it was, and not as another one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from dalsegno.client import Client, DeliveryFailed
from dalsegno.schemas import codec, values
from dalsegno.schemas.events import InformationSupplied, RunCancelled, RunPaused, RunResumed
from dalsegno.streams.client.producer import OutRecord, Receipt
from dalsegno.streams.client.request_ids import RequestIds
from dalsegno.streams.client.writing import set_operations


def cancelled(reason: str = "", run_id: str = "r") -> RunCancelled:
    return RunCancelled(run_id=run_id, request_id="", reason=reason)


def test_a_call_that_failed_keeps_its_id_until_it_is_in_the_log() -> None:
    ids = RequestIds()
    first = ids.named(cancelled())
    assert isinstance(first, RunCancelled)
    assert first.request_id
    assert ids.named(cancelled()) == first
    others = [ids.named(cancelled("why")), ids.named(cancelled(run_id="q"))]
    assert len({first.request_id, *(each.request_id for each in others)}) == 3  # type: ignore[union-attr]
    ids.sent(cancelled())
    assert ids.named(cancelled()) != first


def test_a_pause_behind_a_resume_is_another_one() -> None:
    """Else the service would answer that it knows that one already, and the run would go on."""
    paused, resumed = (kind(run_id="r", request_id="") for kind in (RunPaused, RunResumed))
    ids = RequestIds()
    first, elsewhere = ids.named(paused), RunPaused(run_id="q", request_id="")
    of_another_run = ids.named(elsewhere)
    assert ids.named(paused) == first
    ids.named(resumed)
    assert ids.named(paused) != first
    assert ids.named(elsewhere) == of_another_run


def test_a_field_that_is_set_again_behind_another_value_is_set_anew() -> None:
    def supplied(field: str, value: int, given: str = "") -> InformationSupplied:
        return InformationSupplied(
            run_id="r", information_id=given, ops=set_operations({field: value}, None), origin="me"
        )

    ids = RequestIds()
    first = ids.named(supplied("a", 1))
    ids.named(supplied("b", 2))
    assert ids.named(supplied("a", 1)) == first, "the other one is about another field"
    ids.named(supplied("a", 2))
    again = ids.named(supplied("a", 1))
    assert again != first
    ids.named(supplied("a", 2, "mine"))
    assert ids.named(supplied("a", 1)) not in {first, again}


def test_an_id_that_was_given_stays() -> None:
    given = InformationSupplied(
        run_id="r", information_id="mine", ops=values.pack([]), origin="a person"
    )
    assert RequestIds().named(given) is given


class Broker:
    """Takes what a client sends; of the first record nobody knows what became of it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def deliver(self, record: OutRecord, _timeout_s: float) -> Receipt:
        self.sent.append(codec.decode(record.value))  # type: ignore[arg-type]
        if len(self.sent) == 1:
            raise DeliveryFailed(record.topic, record.key, "_MSG_TIMED_OUT", "")
        return Receipt(record.topic, record.partition, len(self.sent), 0)


@pytest.fixture
def client() -> Iterator[Any]:
    client: Any = Client(bootstrap_servers="127.0.0.1:9")
    kafka, client._producer = client._producer, Broker()
    client._connect, client._partitions = lambda: None, 1
    yield client
    client._producer = kafka
    client.close()


def test_a_cancel_of_unknown_outcome_is_sent_again_under_its_id(client: Any) -> None:
    """Else the service would say of a run that the first one has ended: refused."""
    with pytest.raises(DeliveryFailed):
        client.cancel("r", "no longer needed")
    client.cancel("r", "no longer needed")
    client.cancel("r", "no longer needed")
    first, again, another = [event.request_id for event in client._producer.sent]
    assert first == again != another


def test_facts_go_with_the_version_that_they_were_made_for(client: Any) -> None:
    """And, sent again under their id, with the same one; another version is another request."""

    def supply(version: int | None) -> None:
        client.supply("r", {"income": 4}, origin="me", expected_run_version=version)

    with pytest.raises(DeliveryFailed):
        supply(7)
    supply(7)
    supply(8)
    supply(None)
    sent = client._producer.sent
    assert [event.expected_run_version for event in sent] == [7, 7, 8, None]
    first, again, *others = [event.information_id for event in sent]
    assert first == again
    assert len({first, *others}) == 3


def test_facts_that_did_not_arrive_are_not_kept_in_memory() -> None:
    """An outage may leave thousands of calls behind that nobody repeats."""
    ids = RequestIds()
    for number in range(20):
        ops = set_operations({"large": b"x" * 100_000}, None)
        ids.named(InformationSupplied(run_id=f"r{number}", information_id="", ops=ops, origin="me"))
    assert len(pickle.dumps(ids._open)) < 100_000
