from __future__ import annotations

import pytest

from fscil.errors import UserError
from fscil.naming import choose

MANY = [f"setting_{letter}" for letter in "abcdefghijklmnopqrst"] + ["epochs", "session_epochs", "encoder"]


def message(name: str, known: list[str], what: str, **places: str) -> str:
    with pytest.raises(UserError) as caught:
        choose(name, known, what, **places)
    return str(caught.value)


def test_known_names_pass() -> None:
    assert choose("b", ["a", "b"], "letter") == "b"


def test_unknown_names_get_the_nearest_and_all_if_they_are_few() -> None:
    assert (
        message("resnet21", ["vit", "resnet20"], "encoder")
        == "unknown encoder 'resnet21': did you mean 'resnet20'? known are resnet20, vit"
    )


def test_no_hint_is_better_than_a_wild_one() -> None:
    assert message("qqq", ["vit", "resnet20"], "encoder") == "unknown encoder 'qqq': known are resnet20, vit"


def test_of_many_names_only_the_nearest_are_told() -> None:
    assert message("epoch", MANY, "setting") == "unknown setting 'epoch': did you mean 'epochs'?"
    assert (
        message("setting_", MANY, "setting")
        == "unknown setting 'setting_': did you mean 'setting_t', 'setting_s' or 'setting_r'?"
    )
    assert message("resnet", ["resnet18", "resnet20", "vit"], "encoder").startswith(
        "unknown encoder 'resnet': did you mean 'resnet20' or 'resnet18'? known are"
    )


def test_where_nothing_is_near_it_is_said_where_the_names_are() -> None:
    assert message("qqq", MANY, "setting", see="--show-config shows all").endswith("'qqq': --show-config shows all")
    assert message("qqq", MANY, "setting") == "unknown setting 'qqq': none of the 23 known names is like it"


def test_a_mistake_in_a_file_names_the_file() -> None:
    assert message("epoch", MANY, "setting", where="mine.toml").startswith("mine.toml: unknown setting 'epoch': did")
