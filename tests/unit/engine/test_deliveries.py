"""A batch that Faust lost is asked for anew; one that an agent has begun never is."""

from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.deliveries import OVERDUE_CYCLES, OVERDUE_S, Deliveries


class Receiver:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.processed = 0

    def process(self, _batch: Batch) -> None:
        self.processed += 1

    def dropped(self, _batch: Batch) -> None: ...


def batch(receiver: Receiver) -> Batch:
    return Batch(receiver, 1, (), 5, 5)


def cycles(deliveries: Deliveries, now_s: float, count: int) -> list[Batch]:
    return [late for _ in range(count) for late in deliveries.overdue(now_s)]


def test_a_batch_that_nobody_began_is_named_once() -> None:
    deliveries, lost = Deliveries(), batch(Receiver())
    deliveries.sent(lost, 10.0)
    assert cycles(deliveries, 10.0 + OVERDUE_S / 2, OVERDUE_CYCLES + 1) == []
    assert cycles(deliveries, 10.0 + OVERDUE_S, 5) == [lost]


def test_an_event_loop_that_stood_still_is_no_loss() -> None:
    deliveries, waiting = Deliveries(), batch(Receiver())
    deliveries.sent(waiting, 10.0)
    assert cycles(deliveries, 60.0, OVERDUE_CYCLES) == []


def test_a_batch_that_was_begun_is_never_named() -> None:
    deliveries, receiver = Deliveries(), Receiver()
    begun = batch(receiver)
    deliveries.sent(begun, 10.0)
    begun.process()
    assert receiver.processed == 1
    assert cycles(deliveries, 60.0, OVERDUE_CYCLES + 5) == []
