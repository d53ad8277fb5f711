"""Dead letters: what was put aside, and the way back into the log, once.

A letter goes back with its original key, value and headers, plus the `dalsegno-dead-letter` header
that says where it lay. So whoever reads the log sees what came back; a letter that failed again
carries two of them, and is not sent a second time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dalsegno.ops.kafka.reader import Headers, Reader
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import codec, headers
from dalsegno.schemas.outputs import DeadLetter
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.settings import EngineSettings

# The service's own headers; the rest is the producer's.
_OURS = (headers.DEAD_LETTER, headers.SEQUENCE, headers.SOURCE)


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. Its name is `partition:offset` in the dead-letters topic."""

    partition: int
    offset: int
    at_ms: int
    key: bytes | None
    value: bytes | None
    original_headers: Headers
    letter: DeadLetter
    marker: bytes
    """The encoded `letter`, as in the header."""
    requeues: int
    """How often it had come back into the log before it was put aside."""

    @property
    def name(self) -> str:
        return f"{self.partition}:{self.offset}"


class AlreadyRequeuedError(Exception):
    """The letter is in the log again, or was before: it goes back only once."""


class NoSuchLetterError(Exception):
    """No letter has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no dead letter {name}: see `dalsegno dead-letters list`")


def read_letters(reader: Reader, settings: EngineSettings) -> Iterator[Letter]:
    """All letters, by partition and offset. Repeats of one letter are dropped. Raises ReadError."""
    topic = settings.topics.dead_letters
    for partition in range(reader.partitions(topic)):
        seen: set[tuple[str, int, int]] = set()
        for record in reader.read(topic, partition):
            found = _letter(record.headers)
            if found is None:
                continue
            letter, marker, requeues = found
            source = (letter.topic, letter.partition, letter.offset)
            if source in seen:
                continue
            seen.add(source)
            yield Letter(
                partition,
                record.offset,
                record.at_ms,
                record.key,
                record.value,
                tuple(pair for pair in record.headers if pair[0] not in _OURS),
                letter,
                marker,
                requeues,
            )


def find_letter(reader: Reader, settings: EngineSettings, name: str) -> Letter:
    """The letter of this name (`partition:offset`). Raises NoSuchLetterError, ReadError."""
    found = next((each for each in read_letters(reader, settings) if each.name == name), None)
    if found is None:
        raise NoSuchLetterError(name)
    return found


def requeue(
    reader: Reader,
    writer: Writer,
    letter: Letter,
    topic: str,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[str, int]:
    """Put a letter back into the events `topic`; returns topic and partition.

    An event whose run is known goes to its run's right partition. The log behind the letter's
    source is searched first, so a second call is refused. Two calls at the same moment may both
    append: the fold counts the second as a duplicate, by the original id.
    Raises AlreadyRequeuedError, ReadError, AppendError.
    """
    partition = letter.letter.partition
    if letter.requeues:
        raise AlreadyRequeuedError(
            f"{letter.name} failed again after it was requeued: mend the cause"
        )
    if letter.letter.run_id:
        partition = partition_for(letter.letter.run_id, reader.partitions(topic))
    start = letter.letter.offset + 1 if partition == letter.letter.partition else None
    for record in reader.read(topic, partition, start, progress=progress):
        if (headers.DEAD_LETTER, letter.marker) in record.headers:
            raise AlreadyRequeuedError(
                f"{letter.name} is already back in the log, at {topic}[{partition}]:{record.offset}"
            )
    with_marker = (*letter.original_headers, (headers.DEAD_LETTER, letter.marker))
    writer.append(topic, partition, letter.key, letter.value, with_marker)
    return topic, partition


def _letter(found: Headers) -> tuple[DeadLetter, bytes, int] | None:
    markers = [value for name, value in found if name == headers.DEAD_LETTER]
    if not markers:
        return None
    letter = codec.decode_if(DeadLetter, markers[-1])
    return None if letter is None else (letter, markers[-1], len(markers) - 1)
