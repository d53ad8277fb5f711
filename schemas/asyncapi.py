"""The whole contract as an AsyncAPI 3 document, for producers and consumers in any language.

Operations are the engine's: it receives events and heartbeats and sends everything else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import dalsegno
from dalsegno.schemas import headers
from dalsegno.schemas.kinds import CONTROL_EVENTS, FAULT_CONTROLS, LIVENESS, RUN_EVENTS
from dalsegno.schemas.registry import Registry, registry
from dalsegno.schemas.topics import Topics

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"

_AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
_CONTENT_TYPE: Final = "application/vnd.apache.avro+binary"
_RUN_KEY: Final = "The run id in UTF-8; partition by murmur2 of it."
_ABOUT: Final = (
    "Events of multi-step work on Kafka. Values are Avro single-object encoded; the event contract "
    "in the documentation has the partitioner with vectors, the MessagePack profile and the MAC."
)

_HEADERS: Final[dict[str, str]] = {
    headers.SEQUENCE: "20 bytes, big-endian: int64 source offset, uint32 index, int64 count.",
    headers.SOURCE: "4 bytes, big-endian: source partition.",
    headers.MAC: "ASCII key id, a colon, 32 raw bytes of HMAC-SHA256.",
    headers.SIGNATURE: "On decisions: ASCII key id, a colon, 64 raw bytes of Ed25519.",
    headers.DEAD_LETTER: "An Avro single-object encoded DeadLetter.",
    headers.OMITTED: "ASCII: why the record has no value. Only its place in the order counts then.",
    headers.TRACEPARENT: "W3C trace context.",
}


@dataclass(frozen=True, slots=True)
class _Channel:
    """One topic: what is on it, in which key, and whether the engine reads it. `shared`: kinds that
    are here too, and described with the channel that they belong to.
    """

    name: str
    address: str
    about: str
    key: str
    kinds: Sequence[str]
    headers: tuple[str, ...] = ()
    received: bool = False
    shared: tuple[str, ...] = ()


def export_asyncapi(topics: Topics | None = None) -> dict[str, Json]:
    """The document, as JSON values. `topics`: the prefix to write in."""
    topics, schemas = topics or Topics(), registry()
    channels = _channels(topics)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "dalsegno",
            "version": dalsegno.__version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _CONTENT_TYPE,
        "channels": {each.name: _channel(each) for each in channels},
        "operations": {_operation_id(each): _operation(each) for each in channels},
        "components": {
            "messages": {
                kind: _message(each, kind, schemas) for each in channels for kind in each.kinds
            }
        },
    }


def _channels(topics: Topics) -> tuple[_Channel, ...]:
    order = (headers.SEQUENCE, headers.OMITTED)
    other_key = (*order, headers.SOURCE)
    return (
        _Channel(
            "events", topics.events, "Every input: one order and one owner per partition.",
            f"{_RUN_KEY} Control kinds about a partition go to the one that their body names.",
            [cls.__name__ for cls in (*RUN_EVENTS, *CONTROL_EVENTS)],
            (headers.TRACEPARENT, headers.MAC, headers.SIGNATURE, headers.DEAD_LETTER),
            received=True,
        ),
        _Channel(
            "heartbeats", topics.heartbeats, "Liveness and progress; never history.",
            "None: each record goes to the partition that its body names.",
            [cls.__name__ for cls in LIVENESS], received=True,
        ),
        _Channel(
            "queue", topics.queue("{name}"), "Handoffs to the workers of one queue.",
            _RUN_KEY, ["Handoff"], (*order, headers.TRACEPARENT),
        ),
        _Channel(
            "control", topics.control, "Answers to workers and clients; read by assign.",
            "The reply address.", ["Answer"], other_key,
        ),
        _Channel(
            "transitions", topics.transitions, "The audit record.", _RUN_KEY, ["Transition"], order
        ),
        _Channel(
            "escalations", topics.escalations, "Packages for people.", _RUN_KEY, ["Escalation"],
            order,
        ),
        _Channel(
            "faults", topics.faults, "What partitions have seen of fault points.",
            "The fault point; ticks and policies: the partition.",
            ["FaultReport", *(cls.__name__ for cls in FAULT_CONTROLS)],
            (*other_key, headers.MAC), shared=("ClockTick", "PolicySet"),
        ),
        _Channel(
            "owners", topics.owners, "Who owns each partition; compacted.", "The partition.",
            ["Claim"],
        ),
        _Channel(
            "deadLetters", topics.dead_letters,
            "Original bytes and headers as received; the DeadLetter is in a header of its own.",
            "As received.", ["DeadLetter"], (*order, headers.DEAD_LETTER),
        ),
    )  # fmt: skip


def _channel(channel: _Channel) -> dict[str, Json]:
    found: dict[str, Json] = {
        "address": channel.address,
        "description": channel.about,
        "messages": {
            kind: {"$ref": f"#/components/messages/{kind}"}
            for kind in (*channel.kinds, *channel.shared)
        },
    }
    if "{name}" in channel.address:
        found["parameters"] = {
            "name": {"description": "Name of the queue, as the policy lists it."}
        }
    else:
        found["bindings"] = {"kafka": {"topic": channel.address, "bindingVersion": "0.5.0"}}
    return found


def _operation_id(channel: _Channel) -> str:
    verb = "receive" if channel.received else "send"
    return verb + channel.name[0].upper() + channel.name[1:]


def _operation(channel: _Channel) -> dict[str, Json]:
    return {
        "action": "receive" if channel.received else "send",
        "channel": {"$ref": f"#/channels/{channel.name}"},
        "summary": channel.about,
        "messages": [
            {"$ref": f"#/channels/{channel.name}/messages/{kind}"}
            for kind in (*channel.kinds, *channel.shared)
        ],
    }


def _message(channel: _Channel, kind: str, schemas: Registry) -> dict[str, Json]:
    newest = schemas.newest(kind)
    versions: Json = {str(each.version): each.fingerprint.hex() for each in schemas.by_kind[kind]}
    message: dict[str, Json] = {
        "name": kind,
        "title": kind,
        "summary": newest.schema.doc,
        "contentType": _CONTENT_TYPE,
        "payload": {"schemaFormat": _AVRO, "schema": json.loads(newest.text)},
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": channel.key},
                "bindingVersion": "0.5.0",
            }
        },
        "x-schema-versions": versions,
    }
    if channel.headers:
        message["headers"] = {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": _HEADERS[name]} for name in channel.headers
            },
        }
    return message
