"""Settings: frozen dataclasses whose fields carry a default, a sentence of why, and the values they may take."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from fscil.errors import UserError
from fscil.naming import choose


def setting(
    default: Any, why: str, *, choices: tuple[str, ...] = (), least: float | None = None, most: float | None = None
) -> Any:
    """A field of a settings class, with what a reader (and --show-config) should know about it."""
    return dataclasses.field(default=default, metadata={"why": why, "choices": choices, "least": least, "most": most})


def parse(field: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    """A value from the command line or a TOML file as the field's type, or an error that says what it should be."""
    try:
        parsed = _convert(hint, value)
    except (TypeError, ValueError, OverflowError) as error:
        name = getattr(hint, "__name__", str(hint))
        raise UserError(f"{field.name}={value} is not {_article(name)} {name}") from error
    if choices := field.metadata.get("choices"):
        choose(parsed, choices, f"value for {field.name}")
    least = field.metadata.get("least")
    if least is not None and parsed < least:
        raise UserError(f"{field.name}={value} is too small: it must be at least {least:g}")
    most = field.metadata.get("most")
    if most is not None and parsed > most:
        raise UserError(f"{field.name}={value} is too large: it must be at most {most:g}")
    return parsed


def _article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"


def _convert(hint: Any, value: Any) -> Any:
    if hint is bool:
        words = {
            "true": True,
            "yes": True,
            "on": True,
            "1": True,
            "false": False,
            "no": False,
            "off": False,
            "0": False,
        }
        if isinstance(value, bool):
            return value
        return words[str(value).lower()] if str(value).lower() in words else int("")
    if isinstance(hint, types.UnionType):  # int | str: a number, or a list of them such as "5,3,2"
        return _convert(int, value) if str(value).isdigit() else str(value)
    if hint is int:
        number = float(value)
        if number != int(number):
            raise ValueError(value)
        return int(number)
    if hint is float and not math.isfinite(float(value)):
        raise ValueError(value)
    return hint(value)


def fields_of(*classes: type) -> dict[str, tuple[dataclasses.Field[Any], Any, type]]:
    """name -> (field, its type, the settings class it belongs to), over several settings classes."""
    found = {}
    for cls in classes:
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            found[field.name] = (field, hints[field.name], cls)
    return found


def make(cls: type, values: Mapping[str, Any]) -> Any:
    """An instance of a settings class from the values that concern it."""
    known = fields_of(cls)
    return cls(
        **{name: parse(known[name][0], known[name][1], value) for name, value in values.items() if name in known}
    )
