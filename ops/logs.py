"""Log lines of our processes: structured, one line each; to people in colour, to files as JSON."""

import logging
import sys
import threading
import time
from typing import Literal, TextIO

# structlog takes rich in for coloured tracebacks, where it is installed: half a second of every
# start, and log lines that a terminal shows well enough without.
if "rich" not in sys.modules and "structlog" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

LogLevel = Literal["debug", "info", "warning", "error"]

_CLIENT_LOGGER = "dalsegno.client.kafka"
_REPEAT_S = 30.0
"""librdkafka tells of a broker that is away several times a second, per connection."""

# They log each reconnect and rebalance at info or above what we already report ourselves.
_NOISY = ("faust", "mode", "aiokafka", "kafka", "asyncio")


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
    ]
    render: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=out.isatty())]
    )
    handler = logging.StreamHandler(out)
    handler.addFilter(_Quieter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
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
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def silence_clients() -> None:
    """For short commands: their own line says what failed, librdkafka's lines do not add to it."""
    logger = logging.getLogger(_CLIENT_LOGGER)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


class _Quieter(logging.Filter):
    """Drops Faust's service chatter, and what librdkafka repeats within half a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.levelno <= logging.INFO and text.startswith("[^"):
            return False
        if record.name != _CLIENT_LOGGER:
            return True
        now = time.monotonic()
        kind = text.partition(" (")[0]  # without counts and durations
        with self._lock:  # a handler asks its filters without its own
            self._told = {key: at for key, at in self._told.items() if now - at < _REPEAT_S}
            new = kind not in self._told
            self._told.setdefault(kind, now)
        return new
