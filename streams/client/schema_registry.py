"""A schema registry (Confluent's REST interface, which Apicurio and others offer too).

Subjects are named by record (`RecordNameStrategy`): `dalsegno.StepCompleted`. One topic carries
many kinds, so its name would not do. An id counts only if what the registry has under it is the
schema that was meant, by the fingerprint of its canonical form.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from dalsegno.schemas.registry import SchemaVersion, canonical_fingerprint
from dalsegno.streams.client.errors import ClientError, SettingsError

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX: Final = 1 << 20


class RegistryUnavailable(ClientError, RuntimeError):  # noqa: N818 - says what is the case
    """The registry does not answer, or has a fault of its own. A retry may help."""


class RegistryRefused(SettingsError):  # noqa: N818 - says what is the case
    """The registry lacks a schema, does not take it, or does not let us in. A retry cannot help."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is. Without a `url` there is none, and events go out in single-object
    encoding.
    """

    url: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> RegistrySettings:
        """`DALSEGNO_REGISTRY_URL`, `…_USERNAME`, `…_PASSWORD`, `…_CA_FILE`. Raises
        `SettingsError`.
        """
        url = env.get("DALSEGNO_REGISTRY_URL", "").rstrip("/")
        if url and not url.startswith(("http://", "https://")):
            raise SettingsError(f"DALSEGNO_REGISTRY_URL is {url!r}: write http(s)://host:port/path")
        return cls(
            url=url,
            username=env.get("DALSEGNO_REGISTRY_USERNAME", ""),
            password=env.get("DALSEGNO_REGISTRY_PASSWORD", ""),
            ca_file=env.get("DALSEGNO_REGISTRY_CA_FILE", ""),
        )


def subject_of(version: SchemaVersion) -> str:
    """The subject under which every version of a kind is kept."""
    return version.schema.name


class SchemaRegistry:
    """Looks schemas up and registers them. Blocking; every request ends within `timeout_s`."""

    def __init__(self, settings: RegistrySettings, timeout_s: float = 10.0) -> None:
        """Raises `SettingsError` for a file of authorities that cannot be read."""
        self._url = settings.url
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": _TYPE, "Accept": f"{_TYPE}, application/json"}
        if settings.username:
            pair = f"{settings.username}:{settings.password}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._tls: ssl.SSLContext | None = None
        if self._url.startswith("https://"):
            try:
                self._tls = ssl.create_default_context(cafile=settings.ca_file or None)
            except OSError as error:
                raise SettingsError(
                    f"DALSEGNO_REGISTRY_CA_FILE: no PEM file with certificates ({error})"
                ) from error

    def register(self, version: SchemaVersion) -> int:
        """The id of a schema, which is registered if it is new. Raises `RegistryRefused`,
        `RegistryUnavailable`.
        """
        return self._id_of(version, f"/subjects/{quote(subject_of(version), safe='')}/versions")

    def look_up(self, version: SchemaVersion) -> int:
        """The id of a registered schema. Raises `RegistryRefused` for one that is not there,
        `RegistryUnavailable`.
        """
        return self._id_of(version, f"/subjects/{quote(subject_of(version), safe='')}")

    def _id_of(self, version: SchemaVersion, path: str) -> int:
        what = f"{version.kind} v{version.version}"
        status, answer = self._ask(path, {"schema": version.text})
        found = answer.get("id")
        if status != 200 or not isinstance(found, int):
            raise RegistryRefused(
                f"{self._url} has no schema {what} (status {status}: {answer.get('message')}): run "
                "`dalsegno schemas register`, and check that the user may"
            )
        status, answer = self._ask(f"/schemas/ids/{found}")
        text = answer.get("schema")
        if status != 200 or not isinstance(text, str) or not _is(version, text):
            raise RegistryRefused(
                f"{self._url} says that id {found} is {what} and has another schema under it: "
                "do not use this registry before that is explained"
            )
        return found

    def _ask(self, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        """Status and JSON object of one answer. Raises `RegistryUnavailable`, `RegistryRefused`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)  # noqa: S310 - http(s) by the settings
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=self._timeout_s, context=self._tls
            ) as answer:
                return answer.status, _object(answer.read(_ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                said = _object(error.read(_ANSWER_BYTES_MAX))
            if error.code in (401, 403):
                raise RegistryRefused(
                    f"{self._url} does not let us in (status {error.code}): check "
                    "DALSEGNO_REGISTRY_USERNAME and DALSEGNO_REGISTRY_PASSWORD"
                ) from error
            if error.code >= 500 or error.code == 429:
                raise RegistryUnavailable(f"{self._url}: status {error.code}, try again") from error
            return error.code, said
        except OSError as error:
            raise RegistryUnavailable(f"{self._url} does not answer: {error}; try again") from error


def _object(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}  # a proxy's page: the status says the rest
    return found if isinstance(found, dict) else {}


def _is(version: SchemaVersion, text: str) -> bool:
    try:
        return canonical_fingerprint(json.loads(text)) == version.fingerprint
    except (ValueError, KeyError, TypeError):
        return False
