"""`dalsegno worker` in its plain form, without the tree of commands and its libraries.

They take a third of a second, in which the steps of a worker that was killed would stand still. The
options are those of `worker.worker`; whatever is not plain goes to the tree, which also says what
is wrong with it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from dalsegno.ops.dev.env import DATA_FOLDER, adopt_env

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
CONCURRENCY_DEFAULT: Final = 200


@dataclass(frozen=True, slots=True)
class Plain:
    """What a plain command line says."""

    flows: tuple[str, ...]
    name: str = ""
    concurrency: int = CONCURRENCY_DEFAULT
    queues: tuple[str, ...] = ()


def read(arguments: Sequence[str]) -> Plain | None:
    """The command line, or None when it is not a plain `worker MODULE:FLOW... [--option VALUE]`."""
    if arguments[:1] != ["worker"]:
        return None
    flows: list[str] = []
    queues: list[str] = []
    options = {"--name": "", "--concurrency": str(CONCURRENCY_DEFAULT)}
    words = iter(arguments[1:])
    for word in words:
        option, equals, value = word.partition("=")
        if option in options:
            options[option] = value if equals else next(words, "-")
        elif option == "--queue":
            queues.append(value if equals else next(words, "-"))
        else:
            flows.append(word)
    concurrency = options["--concurrency"]
    odd = any(word.startswith("-") for word in (*flows, *queues, *options.values()))
    if odd or not flows or not concurrency.isdecimal() or int(concurrency) < 1:
        return None
    return Plain(tuple(flows), options["--name"], int(concurrency), tuple(queues))


def run(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> bool:
    """Run a worker until it is told to stop; False if the command line is not a plain one."""
    plain = read(arguments)
    if plain is None:
        return False
    adopt_env(os.environ, Path(DATA_FOLDER))
    from dalsegno.ops.logs import LogLevel
    from dalsegno.ops.work import work

    level = environ.get("DALSEGNO_LOG_LEVEL") or "info"
    known: dict[str, LogLevel] = {each: each for each in get_args(LogLevel)}
    if level not in known:
        return False
    work(
        plain.flows,
        bootstrap_servers=environ.get("DALSEGNO_BOOTSTRAP_SERVERS") or BOOTSTRAP_DEFAULT,
        prefix=environ.get("DALSEGNO_PREFIX") or "",
        name=plain.name,
        concurrency=plain.concurrency,
        log_level=known[level],
        queues=plain.queues,
    )
    return True
