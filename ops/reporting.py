"""The signals of flows, read off the log of every partition."""

from collections.abc import Callable

from dalsegno.ops.folding import fold_log
from dalsegno.ops.kafka.reader import Reader
from dalsegno.streams.core.signals.figures import FlowReport
from dalsegno.streams.core.signals.sums import Sums
from dalsegno.streams.core.signals.tally import Tally
from dalsegno.streams.engine.settings import EngineSettings


def report_flows(
    settings: EngineSettings,
    reader: Reader,
    last: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[FlowReport]:
    """Folds the whole log, one partition after the other: a report of each flow, by name.

    `last`: how many troubled runs to show of each. `progress` gets the number of offsets passed.
    Raises PositionLostError when a log no longer begins at 0, ReadError.
    """
    count = reader.partitions(settings.topics.events)
    sums: dict[str, Sums] = {}
    for number in range(count):
        tally = Tally(number)
        for folded in fold_log(settings, reader, number, count, progress):
            tally.see(folded.record, folded.outputs)
        for flow, found in tally.sums().items():
            sums.setdefault(flow, Sums()).add(found)
    return [found.report(flow, last) for flow, found in sorted(sums.items())]
