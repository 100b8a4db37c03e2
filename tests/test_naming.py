from __future__ import annotations

import pytest

from fscil.errors import UserError
from fscil.naming import choose


def test_known_names_pass() -> None:
    assert choose("b", ["a", "b"], "letter") == "b"


def test_unknown_names_get_the_nearest_and_all() -> None:
    with pytest.raises(UserError) as caught:
        choose("resnet21", ["vit", "resnet20"], "encoder")
    assert str(caught.value) == "unknown encoder 'resnet21': did you mean 'resnet20'? known are resnet20, vit"


def test_no_hint_is_better_than_a_wild_one() -> None:
    with pytest.raises(UserError) as caught:
        choose("qqq", ["vit", "resnet20"], "encoder")
    assert str(caught.value) == "unknown encoder 'qqq': known are resnet20, vit"
