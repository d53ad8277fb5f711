"""A package as the message that is posted: JSON, blocks in the order in which a person needs them.

The values of effects stay out of it: their keys and what is known of them stand there.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

import msgspec

from dalsegno.schemas import webhook
from dalsegno.schemas.control import Webhook
from dalsegno.schemas.outputs import Escalation
from dalsegno.streams.core.people.options import NOTICE
from dalsegno.streams.core.people.screen import screen

_ID_CHARS: Final = 32
# Results of effects (`effects`) stay out.
BLOCKS: Final = (
    ("question", "asked", "answer_by_ms", "silence", "silence_text", "reminder"),
    ("run_goal", "goal", "flow", "flow_version", "run_id", "step"),
    ("facts",),
    ("message", "reason", "failure_type", "error_class", "dependency", "advice", "missing_fields"),
    ("attempts", "infra_attempts", "evidence"),
    ("effect_lines", "effects_more"),
    ("options",),
    ("form", "fields"),
    ("at_ms", "partition", "offset", "epoch", "run_version", "plan_digest", "values_digest"),
    ("cause", "earlier"),
    ("escalation_id", "package_digest"),
)


@dataclass(frozen=True, slots=True)
class Message:
    """What is posted for one package. `id` is the same for each attempt."""

    id: str
    body: bytes


def message_of(package: Escalation) -> Message:
    """The same package gives the same message, in any engine."""
    data = {
        name: value.hex() if isinstance(value, bytes) else value
        for block in BLOCKS
        for name in block
        for value in (getattr(package, name),)
    }
    data["text"] = _text(package)
    at = dt.datetime.fromtimestamp(package.at_ms / 1_000, dt.UTC)
    body = {
        "type": _type_of(package),
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": data,
    }
    name = f"{package.package_digest.hex()[:_ID_CHARS]}-{package.reminder}"
    return Message(name, msgspec.json.encode(body))


def headers_of(hook: Webhook, secret: bytes, message: Message, at_s: int) -> dict[str, str]:
    """The headers of one attempt."""
    return {
        "content-type": "application/json",
        webhook.ID: message.id,
        webhook.TIMESTAMP: str(at_s),
        webhook.SIGNATURE: webhook.signature(secret, message.id, at_s, message.body),
        webhook.KEY_ID: hook.key_id,
    }


def _type_of(package: Escalation) -> str:
    if package.asked == NOTICE:
        return "escalation.noticed"
    return "escalation.reminded" if package.reminder else "escalation.asked"


def _text(package: Escalation) -> str:
    blocks = ("\n".join([heading, *(f"  {line}" for line in lines)]) for heading, lines in
              screen(package))  # fmt: skip
    return "\n".join([package.escalation_id, *blocks])
