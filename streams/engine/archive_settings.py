"""Where the archive is: `DALSEGNO_ARCHIVE_…` variables."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from dalsegno.storage.archive.s3_settings import S3Settings


class ArchiveSettings(BaseSettings):
    """Any S3. Without a bucket there is no archive. What is left out of the credentials comes from
    boto3's own chain.
    """

    model_config = SettingsConfigDict(
        env_prefix="DALSEGNO_ARCHIVE_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    bucket: str = ""
    prefix: str = Field(default="", description="of the objects' keys; default: the topics' prefix")
    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: SecretStr = SecretStr("")
    path_style: bool = False
    ca_file: str = Field(default="", description="certificates to verify the endpoint by")
    encryption: str = Field(default="", pattern=r"^(|AES256|aws:kms)$")
    kms_key_id: str = ""
    checksums: bool = Field(default=False, description="boto3's own, where a service demands them")
    connect_timeout_ms: int = Field(default=2_000, ge=100)
    read_timeout_ms: int = Field(default=20_000, ge=100)
    attempts: int = Field(default=4, ge=1, le=20)
    interval_ms: int = Field(
        default=300_000, ge=100, description="how old an event is when it is archived"
    )
    idle_ms: int = Field(
        default=24 * 3_600_000,
        ge=0,
        description="a run that waits for so long leaves for the archive; 0: none does",
    )
    segment_bytes: int = Field(default=32 << 20, ge=1 << 16, le=128 << 20)
    backlog_events: int = Field(
        default=5_000_000,
        ge=1,
        description="of a partition that are not archived: at so many it reads no further",
    )
    sweep_interval_ms: int = Field(
        default=6 * 3_600_000, ge=100, description="between two looks for what nobody needs"
    )
    orphan_age_ms: int = Field(
        default=24 * 3_600_000, ge=0, description="what is younger is left alone by the sweep"
    )

    @property
    def enabled(self) -> bool:
        """Whether there is an archive."""
        return bool(self.bucket)

    def s3(self) -> S3Settings:
        """For the client."""
        return S3Settings(
            bucket=self.bucket,
            endpoint=self.endpoint or None,
            region=self.region or None,
            access_key_id=self.access_key_id or None,
            secret_access_key=self.secret_access_key.get_secret_value() or None,
            path_style=self.path_style,
            verify_tls=self.ca_file or True,
            encryption=self.encryption or None,
            kms_key_id=self.kms_key_id or None,
            checksums=self.checksums,
            connect_timeout_ms=self.connect_timeout_ms,
            read_timeout_ms=self.read_timeout_ms,
            attempts=self.attempts,
        )
