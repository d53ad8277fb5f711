"""The exported contract is valid AsyncAPI 3, complete, and has no loose reference."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dalsegno.schemas import headers, kinds
from dalsegno.schemas.asyncapi import export_asyncapi
from dalsegno.schemas.registry import registry
from dalsegno.schemas.topics import Topics

SPECIFICATION = Path(__file__).parent / "asyncapi/3.0.0.json"
DOCUMENT: Any = export_asyncapi()


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads(SPECIFICATION.read_text()))


def test_the_document_is_valid(validator: jsonschema.Draft7Validator) -> None:
    problems = [
        f"{each.json_path}: {each.message:.200}" for each in validator.iter_errors(DOCUMENT)
    ]
    assert problems == []


def test_the_validator_notices_mistakes(validator: jsonschema.Draft7Validator) -> None:
    """Of the document's own parts: an operation, a channel, an Avro schema inside a payload."""
    for break_it in (
        lambda copy: copy["operations"]["sendControl"].update(action="shout"),
        lambda copy: copy["channels"]["control"].update(adress="x"),
        lambda copy: copy["components"]["messages"]["Answer"]["payload"]["schema"].update(fields=1),
        lambda copy: copy.pop("info"),
    ):
        copy = json.loads(json.dumps(DOCUMENT))
        break_it(copy)
        assert not validator.is_valid(copy)


def test_it_has_every_kind_with_the_file_that_is_in_force() -> None:
    messages = DOCUMENT["components"]["messages"]
    assert set(messages) == set(kinds.KINDS)
    for kind, message in messages.items():
        newest = registry().newest(kind)
        assert message["payload"]["schema"] == json.loads(newest.text)
        assert message["x-schema-versions"][str(newest.version)] == newest.fingerprint.hex()
        assert message["summary"]


def test_it_has_every_header_where_it_stands() -> None:
    """Else a producer in another language cannot take part by the document."""
    names = {value for name, value in vars(headers).items() if name.isupper()}
    found: dict[str, set[str]] = {}
    for kind, message in DOCUMENT["components"]["messages"].items():
        for name in message.get("headers", {"properties": {}})["properties"]:
            found.setdefault(name, set()).add(kind)
    assert set(found) == names
    assert "DecisionMade" in found[headers.SIGNATURE]
    assert {"Handoff", "Answer", "Transition", "DeadLetter"} <= found[headers.OMITTED]


def test_kinds_that_are_on_two_topics_are_told_on_both() -> None:
    for name in ("events", "faults"):
        assert {"ClockTick", "PolicySet"} <= set(DOCUMENT["channels"][name]["messages"])


def test_every_reference_leads_somewhere() -> None:
    for reference in references(DOCUMENT):
        node = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, each in node.items():
            if key == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_the_prefix_is_in_every_address() -> None:
    document: Any = export_asyncapi(Topics("shop"))
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert "shop.queue.{name}" in addresses
    assert all(address.startswith("shop.") for address in addresses)
