"""The typed mapping from what a body raises to the return contract."""

import pytest

from dalsegno.client import (
    DependencyDown,
    FailureType,
    Invalid,
    MissingInfo,
    Permanent,
    Transient,
    UndeclaredRead,
    UndeclaredWrite,
    Unsafe,
)
from dalsegno.streams.client.failures import report_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Transient("later"), FailureType.TRANSIENT),
        (DependencyDown("bureau"), FailureType.DEPENDENCY),
        (MissingInfo(["income"]), FailureType.MISSING_INFO),
        (Invalid("contradiction"), FailureType.INVALID),
        (Permanent("gone"), FailureType.PERMANENT),
        (Unsafe("two payouts"), FailureType.UNSAFE),
        (UndeclaredRead("s", "x", []), FailureType.INVALID),
        (UndeclaredWrite("s", "x", []), FailureType.INVALID),
        (ValueError("bad"), FailureType.TRANSIENT),
        (TimeoutError(), FailureType.TRANSIENT),
    ],
)
def test_each_exception_has_its_type(error: Exception, kind: FailureType) -> None:
    assert report_of(error).failure_type is kind


def test_the_details_travel() -> None:
    report = report_of(
        MissingInfo(["income", "employer"], "no payslip", advice="ask the applicant")
    )
    assert report.missing_fields == ("income", "employer")
    assert (report.message, report.advice) == ("no payslip", "ask the applicant")
    down = report_of(DependencyDown("bureau", retry_after="3s"))
    assert (down.dependency, down.retry_after_ms) == ("bureau", 3_000)
    assert report_of(Transient(retry_after="1m")).retry_after_ms == 60_000
    assert report_of(Invalid("x", risk_flags=["fraud"])).risk_flags == ("fraud",)


def test_other_exceptions_keep_their_class_and_never_grow_too_large() -> None:
    report = report_of(ValueError("x" * 10_000 + "\ud800"))
    assert report.error_class == "ValueError"
    assert len(report.message) == 2_000
    assert report_of(ValueError("a\ud800b")).message == "a?b"
