"""The public SDK: everything a Python service needs to start, report and run steps."""

from dalsegno.schemas.blob import Blob
from dalsegno.schemas.control import DecisionType
from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.events import FailureType
from dalsegno.schemas.outputs import RunState, StepState
from dalsegno.schemas.plan import (
    FieldType,
    MergeRule,
    OnFailure,
    Plan,
    RecoverPolicy,
    RetryPolicy,
    Risk,
    UnknownPolicy,
)
from dalsegno.schemas.values import Value
from dalsegno.streams.client.blob_errors import (
    BlobCorrupt,
    BlobMissing,
    BlobRefused,
    BlobStoreUnavailable,
)
from dalsegno.streams.client.check import Finding, Severity
from dalsegno.streams.client.client import Client
from dalsegno.streams.client.config import ClientConfig, Security, WorkerConfig
from dalsegno.streams.client.context import BlockingContext, Context
from dalsegno.streams.client.durations import Duration
from dalsegno.streams.client.effects import NOT_DONE, Effect
from dalsegno.streams.client.errors import (
    ClientError,
    ClosedError,
    DeliveryFailed,
    EngineUnavailable,
    FlowError,
    ForkedError,
    NameInUse,
    QueueFull,
    ReportRefused,
    ReportsLost,
    RunRefused,
    SettingsError,
    UnknownRun,
    VersionNotKept,
    WaitTimeout,
    WorkerFenced,
)
from dalsegno.streams.client.failures import (
    DependencyDown,
    Invalid,
    MissingInfo,
    Permanent,
    StepFailure,
    StepStopped,
    Transient,
    UndeclaredRead,
    UndeclaredWrite,
    Unsafe,
)
from dalsegno.streams.client.flow import Flow
from dalsegno.streams.client.outcomes import RunResult
from dalsegno.streams.client.producer import Receipt
from dalsegno.streams.client.refused import BrokerRefused
from dalsegno.streams.client.report import EffectReport, Report
from dalsegno.streams.client.request_ids import new_run_id
from dalsegno.streams.client.schema import ContextSchema, Secret
from dalsegno.streams.client.schema_errors import (
    FieldRefused,
    SchemaError,
    UpcastFailed,
    VersionMismatchError,
)
from dalsegno.streams.client.step import Step, StepOptions
from dalsegno.streams.client.undo import DoneEffect, Undo
from dalsegno.streams.client.views import RunVersion, RunView, StepView
from dalsegno.streams.client.worker import Worker
from dalsegno.streams.core.query import DecisionView, QuestionView, SagaView

__all__ = [
    "NOT_DONE",
    "Blob",
    "BlobCorrupt",
    "BlobMissing",
    "BlobRefused",
    "BlobStoreUnavailable",
    "BlockingContext",
    "BrokerRefused",
    "Client",
    "ClientConfig",
    "ClientError",
    "ClosedError",
    "Context",
    "ContextSchema",
    "DecisionType",
    "DecisionView",
    "DeliveryFailed",
    "DependencyDown",
    "DoneEffect",
    "Duration",
    "Effect",
    "EffectReport",
    "EngineUnavailable",
    "FailureType",
    "FieldRefused",
    "FieldType",
    "Finding",
    "Flow",
    "FlowError",
    "ForkedError",
    "Invalid",
    "MergeRule",
    "MissingInfo",
    "NameInUse",
    "OnFailure",
    "Permanent",
    "Plan",
    "QuestionView",
    "QueueFull",
    "Receipt",
    "RecoverPolicy",
    "Report",
    "ReportRefused",
    "ReportsLost",
    "RetryPolicy",
    "Risk",
    "RunRefused",
    "RunResult",
    "RunState",
    "RunVersion",
    "RunView",
    "SagaView",
    "SchemaError",
    "Secret",
    "Security",
    "SettingsError",
    "Severity",
    "Step",
    "StepFailure",
    "StepOptions",
    "StepState",
    "StepStopped",
    "StepView",
    "Transient",
    "UndeclaredRead",
    "UndeclaredWrite",
    "Undo",
    "UnknownPolicy",
    "UnknownRun",
    "Unsafe",
    "UpcastFailed",
    "Value",
    "ValueRefusedError",
    "VersionMismatchError",
    "VersionNotKept",
    "WaitTimeout",
    "Worker",
    "WorkerConfig",
    "WorkerFenced",
    "new_run_id",
]
