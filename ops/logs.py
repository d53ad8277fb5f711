"""Log lines of our processes: structured, one line each; to people in colour, to files as JSON."""

import logging
import sys
from typing import Literal, TextIO

import structlog

LogLevel = Literal["debug", "info", "warning", "error"]

# They log each reconnect and rebalance at info or above what we already report ourselves.
_NOISY = ("faust", "mode", "aiokafka", "kafka", "asyncio", "dalsegno.client.kafka")


def configure(level: LogLevel, stream: TextIO | None = None, *, json: bool | None = None) -> None:
    """Set up structlog and the standard library's loggers, once per process.

    `stream` defaults to standard error; `json` to whether the stream is not a terminal.
    """
    out = sys.stderr if stream is None else stream
    as_json = not out.isatty() if json is None else json
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(default=repr)
        if as_json
        else structlog.dev.ConsoleRenderer(colors=out.isatty())
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    number = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(number)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared[:-1],
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
