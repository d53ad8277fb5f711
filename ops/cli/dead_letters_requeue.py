"""`dalsegno dead-letters requeue`: back into the log, once, with the original id."""

from typing import Annotated

import typer

from dalsegno.ops.cli.render import progress_bar
from dalsegno.ops.cli.settings import read_settings


def requeue(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="partition:offset, as listed")
    ],
) -> None:
    """Append letters to the log again, as they came; each goes back only once."""
    from dalsegno.ops.kafka.letters import find_letter
    from dalsegno.ops.kafka.letters import requeue as put_back
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.kafka.writer import Writer

    settings = read_settings()
    writer = Writer(settings)
    with Reader(settings) as reader, progress_bar() as bar:
        task = bar.add_task("searching the log", total=None)
        for name in names:
            letter = find_letter(reader, settings, name)
            topic, partition = put_back(
                reader, writer, letter, settings.topics.events, lambda n: bar.advance(task, n)
            )
            print(f"{name}: appended to {topic}[{partition}]")
