"""Damage to documents, and what reading them may answer to it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fscil.errors import UserError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(), max_size=8),  # lone surrogates, too
    st.sampled_from([0, -1, -0.0, 1e14, 1e308, 2**31, 2**63, 10**400, "\ud800", "\0", "x" * 5000, "cifar100", "limit"]),
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
QUICK = settings(
    deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def refused(act: Callable[[], object]) -> bool:
    """Whether a UserError says in one short line what is wrong; any other exception is a bug."""
    try:
        act()
    except UserError as error:
        said = str(error)
    else:
        return False
    assert "\n" not in said
    assert len(said) < 600
    return True


def places(document: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value; of a long list, the first few."""
    inner = list(document.items() if isinstance(document, dict) else enumerate(document[:3]))
    found = [(*here, key) for key, _ in inner]
    return found + [at for key, value in inner if isinstance(value, dict | list) for at in places(value, (*here, key))]


@st.composite
def damaged(draw: st.DrawFn, document: dict[str, Any], values: st.SearchStrategy[Any]) -> dict[str, Any]:
    """The document with one to three values replaced, removed or inserted anywhere."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        if not document:
            break
        *way, last = draw(st.sampled_from(places(document)))
        parent: Any = document
        for key in way:
            parent = parent[key]
        deed = draw(st.sampled_from(["replace", "replace", "replace", "remove", "insert"]))
        if deed == "replace":
            parent[last] = draw(values)
        elif deed == "remove":
            del parent[last]
        elif isinstance(parent, list):
            parent.insert(last, draw(values))
        else:
            parent[draw(st.text(max_size=5))] = draw(values)
    return document
