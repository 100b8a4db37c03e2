from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from fscil import datasets, methods
from fscil.config_layers import known_settings
from fscil.errors import UserError
from fscil.settings import fields_of, make, setting


@dataclass(frozen=True)
class Example:
    count: int = setting(3, "how many", least=1)
    rate: float = setting(0.5, "how fast", least=0, most=1)
    on: bool = setting(True, "whether")
    kind: str = setting("red", "which", choices=("red", "green"))
    way: int | str = setting(5, "a number or a list")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("count", "7", 7),
        ("count", 7, 7),
        ("count", "1e3", 1000),
        ("rate", "0.25", 0.25),
        ("rate", 1, 1.0),
        ("on", "false", False),
        ("on", "No", False),
        ("on", "off", False),
        ("on", "0", False),
        ("on", "TRUE", True),
        ("on", "yes", True),
        ("on", "on", True),
        ("on", "1", True),
        ("on", False, False),
        ("kind", "green", "green"),
        ("way", "5", 5),
        ("way", "5,3", "5,3"),
        ("way", 5, 5),
    ],
)
def test_values_become_what_the_field_is(key: str, value: Any, expected: Any) -> None:
    found = getattr(make(Example, {key: value}), key)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("count", "seven", "count=seven is not an int"),
        ("count", "1.5", "count=1.5 is not an int"),
        ("count", "", "count= is not an int"),
        ("count", "inf", "count=inf is not an int"),
        ("count", "nan", "count=nan is not an int"),
        ("count", [1], "is not an int"),
        ("count", True, "count=True is not an int"),
        ("count", "0", "count=0 is too small: it must be at least 1"),
        ("count", "-2", "too small"),
        ("rate", "fast", "rate=fast is not a float"),
        ("rate", "nan", "rate=nan is not a float"),
        ("rate", "inf", "rate=inf is not a float"),
        ("rate", "-0.1", "rate=-0.1 is too small: it must be at least 0"),
        ("rate", "1.1", "rate=1.1 is too large: it must be at most 1"),
        ("on", "maybe", "on=maybe is not a bool"),
        ("on", "2", "on=2 is not a bool"),
        ("kind", True, "kind=True is not a str"),
        ("kind", "greem", "unknown value for kind 'greem': did you mean 'green'"),
    ],
)
def test_bad_values_are_refused_in_one_line(key: str, value: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        make(Example, {key: value})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_given_keeps_its_default_and_what_is_foreign_is_left_alone() -> None:
    assert make(Example, {"count": "4", "epochs": "9"}) == Example(count=4)


@pytest.mark.parametrize(("method", "dataset"), list(product(methods.names(), datasets.names())))
def test_no_name_means_two_things(method: str, dataset: str) -> None:
    """key=value on the command line does not say whether it is the method's, the dataset's or the run's."""
    assert "seed" not in known_settings(method, dataset)  # it is an option of its own


@pytest.mark.parametrize("method", methods.names())
def test_every_setting_of_a_method_says_why_and_takes_its_own_default(method: str) -> None:
    cls = methods.get(method).Settings
    for name, (field, _) in fields_of(cls).items():
        assert field.metadata["why"], name
    defaults = cls()
    assert make(cls, {name: str(getattr(defaults, name)) for name in fields_of(cls)}) == defaults
