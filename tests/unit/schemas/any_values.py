"""Values of a context, drawn."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from hypothesis import strategies as st

from dalsegno.schemas import values

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(values.INT_MIN, values.INT_MAX)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.datetimes(timezones=st.just(UTC))
)


def any_value(max_leaves: int) -> st.SearchStrategy[Any]:
    """Atoms, lists and maps of them, in each other."""
    return st.recursive(
        ATOMS,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=max_leaves,
    )
