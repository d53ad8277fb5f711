"""Objects of any S3, through boto3.

One client for each process, made before its threads: making clients is not safe for threads, using
one is. An upload is one request, never a multipart one, so an upload that broke leaves nothing
behind. boto3's own checksums are used only where a service demands them; the archive verifies by
its own digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)

from dalsegno.storage.archive.objects import ArchiveError, ObjectStat, Trouble
from dalsegno.storage.archive.s3_settings import S3Settings

_DELETE_MAX: Final = 1_000
_CODES: Final = {
    "NoSuchKey": Trouble.MISSING,
    "404": Trouble.MISSING,
    "NotFound": Trouble.MISSING,
    "InvalidRange": Trouble.DAMAGED,
    "416": Trouble.DAMAGED,
    "NoSuchBucket": Trouble.CONFIGURED,
    "PermanentRedirect": Trouble.CONFIGURED,
    "AuthorizationHeaderMalformed": Trouble.CONFIGURED,
    "301": Trouble.CONFIGURED,
    "PreconditionFailed": Trouble.EXISTS,
    "412": Trouble.EXISTS,
    "ConditionalRequestConflict": Trouble.BUSY,
    "409": Trouble.BUSY,
    "AccessDenied": Trouble.DENIED,
    "403": Trouble.DENIED,
    "401": Trouble.DENIED,
    "InvalidAccessKeyId": Trouble.DENIED,
    "SignatureDoesNotMatch": Trouble.DENIED,
    "ExpiredToken": Trouble.DENIED,
    "RequestTimeTooSkewed": Trouble.DENIED,
    "SlowDown": Trouble.BUSY,
    "Throttling": Trouble.BUSY,
    "RequestTimeout": Trouble.SLOW,
    "QuotaExceeded": Trouble.FULL,
    "XMinioStorageFull": Trouble.FULL,
    "InsufficientStorage": Trouble.FULL,
    "507": Trouble.FULL,
}
_MENDS: Final = {
    Trouble.DENIED: "check the credentials and the rights on the bucket",
    Trouble.CONFIGURED: "check bucket, region and endpoint",
}


class S3Objects:
    """The objects of one bucket. Make one in each process, before threads use it."""

    def __init__(self, settings: S3Settings) -> None:
        self._bucket = settings.bucket
        self._client: Any = boto3.Session().client("s3", **client_arguments(settings))
        self._put_arguments: dict[str, str] = {}
        if settings.encryption is not None:
            self._put_arguments["ServerSideEncryption"] = settings.encryption
        if settings.kms_key_id is not None:
            self._put_arguments["SSEKMSKeyId"] = settings.kms_key_id

    def check(self) -> None:
        """Whether the bucket is there and may be read. Raises `ArchiveError`."""
        try:
            self._client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)
        except (ClientError, BotoCoreError) as error:
            raise _told(self._bucket, error) from error

    def make_bucket(self) -> None:
        """Make the bucket; no error if it is ours already. Raises `ArchiveError`."""
        try:
            self._client.create_bucket(Bucket=self._bucket)
        except (
            self._client.exceptions.BucketAlreadyOwnedByYou,
            self._client.exceptions.BucketAlreadyExists,
        ):
            self.check()
        except (ClientError, BotoCoreError) as error:
            raise _told(self._bucket, error) from error

    def put(self, key: str, data: bytes) -> None:
        """See `Objects`."""
        try:
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*", **self._put_arguments
            )
        except (ClientError, BotoCoreError) as error:
            told = _told(key, error)
            if told.trouble is not Trouble.EXISTS:
                raise told from error
            # A try before this one may have put it, and its answer was lost.
            if self.get(key) != data:
                raise ArchiveError(Trouble.EXISTS, key, "other bytes have this key") from error

    def replace(self, key: str, data: bytes) -> None:
        """See `Objects`."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data, **self._put_arguments)
        except (ClientError, BotoCoreError) as error:
            raise _told(key, error) from error

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        """See `Objects`."""
        if size == 0:
            return b""
        arguments = {"Bucket": self._bucket, "Key": key}
        if size is not None or first:
            last = "" if size is None else str(first + size - 1)
            arguments["Range"] = f"bytes={first}-{last}"
        try:
            answer = self._client.get_object(**arguments)
            with closing(answer["Body"]) as body:  # its own context would give the raw stream
                found: bytes = body.read()
        except (ClientError, BotoCoreError) as error:
            raise _told(key, error) from error
        whole = answer["ContentLength"] if size is None else size
        if len(found) != whole:
            raise ArchiveError(Trouble.DAMAGED, key, f"{len(found)} of {whole} bytes from {first}")
        return found

    def stat(self, key: str) -> ObjectStat | None:
        """See `Objects`."""
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
        except (ClientError, BotoCoreError) as error:
            told = _told(key, error)
            if told.trouble is Trouble.MISSING:
                return None
            raise told from error
        return ObjectStat(key, answer["ContentLength"], _ms(answer["LastModified"]))

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        """See `Objects`."""
        pages = self._client.get_paginator("list_objects_v2")
        try:
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for each in page.get("Contents", ()):
                    yield ObjectStat(each["Key"], each["Size"], _ms(each["LastModified"]))
        except (ClientError, BotoCoreError) as error:
            raise _told(prefix or self._bucket, error) from error

    def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
        """See `Objects`. Where the service refuses deletions in bulk, one by one."""
        failed: dict[str, ArchiveError] = {}
        for begin in range(0, len(keys), _DELETE_MAX):
            some = keys[begin : begin + _DELETE_MAX]
            try:
                answer = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": key} for key in some], "Quiet": True},
                )
            except (ClientError, BotoCoreError) as error:
                told = _told(some[0], error)
                if told.passing:
                    # The store is in trouble: a thousand requests more would not help.
                    return {**failed, **dict.fromkeys(keys[begin:], told)}
                failed |= self._delete_singly(some)
                continue
            for each in answer.get("Errors", ()):
                if each["Code"] not in ("NoSuchKey", "404"):
                    failed |= self._delete_singly([each["Key"]])
        return failed

    def _delete_singly(self, keys: Sequence[str]) -> dict[str, ArchiveError]:
        failed: dict[str, ArchiveError] = {}
        for place, key in enumerate(keys):
            try:
                self._client.delete_object(Bucket=self._bucket, Key=key)
            except (ClientError, BotoCoreError) as error:
                told = _told(key, error)
                if told.trouble is not Trouble.MISSING:
                    failed[key] = told
                if told.passing:
                    return {**failed, **dict.fromkeys(keys[place:], told)}
        return failed

    def close(self) -> None:
        """See `Objects`."""
        self._client.close()


def client_arguments(settings: S3Settings) -> dict[str, Any]:
    """What boto3's `client("s3", …)` is made with."""
    checksums = "when_supported" if settings.checksums else "when_required"
    given = {
        "endpoint_url": settings.endpoint,
        "region_name": settings.region,
        "aws_access_key_id": settings.access_key_id,
        "aws_secret_access_key": settings.secret_access_key,
        "aws_session_token": settings.session_token,
    }
    config = Config(
        connect_timeout=settings.connect_timeout_ms / 1_000,
        read_timeout=settings.read_timeout_ms / 1_000,
        retries={"mode": "standard", "total_max_attempts": settings.attempts},
        max_pool_connections=settings.connections,
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
        tcp_keepalive=True,
    )
    found = {name: value for name, value in given.items() if value is not None}
    return {**found, "config": config, "verify": settings.verify_tls}


def _told(key: str, error: ClientError | BotoCoreError) -> ArchiveError:
    """A typed error; what is not known is said to be the store's own."""
    if isinstance(error, ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        trouble = _CODES.get(code) or _CODES.get(str(status))
        if trouble is None:
            trouble = Trouble.BUSY if status >= 500 or status == 429 else Trouble.CONFIGURED
    elif isinstance(error, (ReadTimeoutError, ConnectTimeoutError)):
        trouble = Trouble.SLOW
    elif isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        trouble = Trouble.DENIED
    else:
        trouble = Trouble.UNREACHABLE
    mend = _MENDS.get(trouble)
    return ArchiveError(trouble, key, f"{error}; {mend}" if mend else str(error))


def _ms(at: datetime) -> int:
    return int(at.astimezone(UTC).timestamp() * 1_000)
