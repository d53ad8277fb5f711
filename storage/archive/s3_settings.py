"""Where a bucket is: a value by itself, since boto3 takes a fifth of a second to import."""

from __future__ import annotations

import msgspec


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bucket is. What is left out comes from boto3's own chain (environment, files,
    instance role). Times in milliseconds.

    `encryption`: `AES256` or `aws:kms`, with `kms_key_id`. `checksums`: ask boto3 to add its own
    to every request, for services that demand it; some refuse them.
    """

    bucket: str
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    path_style: bool = False
    verify_tls: bool | str = True
    encryption: str | None = None
    kms_key_id: str | None = None
    checksums: bool = False
    connect_timeout_ms: int = 2_000
    read_timeout_ms: int = 20_000
    attempts: int = 4
    connections: int = 16
