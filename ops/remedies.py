"""Advice that several commands give, in the same words."""

from typing import Final

BROKERS_REMEDY: Final = (
    "start the brokers, or name them in DALSEGNO_BOOTSTRAP_SERVERS; "
    "if `dalsegno dev` has just been started, wait until it says that the engine is ready"
)
