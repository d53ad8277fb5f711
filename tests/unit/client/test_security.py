"""The client's security settings, as librdkafka is told them."""

from __future__ import annotations

import pytest

from dalsegno.streams.client.config import Security
from dalsegno.streams.client.errors import SettingsError

CHECK = "DALSEGNO_SSL_CHECK_HOSTNAME"
ALGORITHM = "ssl.endpoint.identification.algorithm"


def test_the_password_of_the_key_is_passed_on_and_never_shown() -> None:
    security = Security.from_env({"DALSEGNO_SSL_KEY_PASSWORD": "hush"})
    assert security.properties() == {"ssl.key.password": "hush"}
    assert "hush" not in repr(security)


@pytest.mark.parametrize("word", ["false", "False", "0", "no", "off"])
def test_the_check_of_the_name_can_be_switched_off(word: str) -> None:
    assert Security.from_env({CHECK: word}).properties() == {ALGORITHM: "none"}


@pytest.mark.parametrize("env", [{}, {CHECK: "true"}, {CHECK: "1"}])
def test_names_are_checked_unless_told_otherwise(env: dict[str, str]) -> None:
    assert Security.from_env(env).properties() == {}


@pytest.mark.parametrize("word", ["", "maybe"])
def test_another_word_is_an_error_and_not_a_guess(word: str) -> None:
    with pytest.raises(SettingsError, match=CHECK):
        Security.from_env({CHECK: word})


def test_the_mechanism_is_the_engines_default_unless_one_is_named() -> None:
    env = {"DALSEGNO_SECURITY_PROTOCOL": "SASL_SSL"}
    assert Security.from_env(env).properties()["sasl.mechanisms"] == "SCRAM-SHA-512"
    env["DALSEGNO_SASL_MECHANISM"] = "PLAIN"
    assert Security.from_env(env).properties()["sasl.mechanisms"] == "PLAIN"
