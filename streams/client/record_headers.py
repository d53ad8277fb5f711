"""The headers of a record that librdkafka has read."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from confluent_kafka import Message

# For a name that is no UTF-8 the library returns a value and leaves an exception set. A plain call
# of a method may pass over that (Python's adaptive interpreter does not look), and the exception
# comes up in whatever is called next. This way of calling looks every time.
_headers: Final = methodcaller("headers")


class HeaderNamesError(ValueError):
    """A header's name is no UTF-8: the library gives none of the record's headers."""

    def __init__(self, message: Message) -> None:
        super().__init__(
            f"{message.topic()}[{message.partition()}]@{message.offset()}: "
            "the name of a header is no UTF-8"
        )


def headers_of(message: Message) -> tuple[tuple[str, bytes], ...]:
    """Names and values in order, an empty value for none. Raises `HeaderNamesError`."""
    try:
        return tuple((name, held or b"") for name, held in _headers(message) or ())
    except UnicodeDecodeError as error:
        raise HeaderNamesError(message) from error
    except SystemError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise HeaderNamesError(message) from error
        raise
