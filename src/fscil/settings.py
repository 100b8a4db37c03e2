"""Settings: frozen dataclasses whose fields have a default, a purpose and allowed values."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from fscil.errors import UserError
from fscil.naming import choose, quotable

BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
LONGEST_TEXT = 4096  # characters; no path can be longer
LARGEST_WHOLE = 2**53  # up to here 1e3 and 1000 are the same number


def setting(
    default: Any,
    why: str,
    *,
    origin: str = "",
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """A field of a settings class, with what a reader (and --show-config) should know about it.

    `why` says what the setting is, whatever its value; `origin` says where the default comes from ("the paper's").
    """
    metadata = {"why": why, "origin": origin, "choices": choices, "least": least, "most": most}
    return dataclasses.field(default=default, metadata=metadata)


def parse(field: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    """A value from the command line or a TOML file as the field's type, or an error that says what it should be."""
    try:
        parsed = _convert(hint, value)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        name = getattr(hint, "__name__", str(hint))
        article = "an" if name[0] in "aeiou" else "a"
        raise UserError(f"{field.name}={quotable(value)} is not {article} {name}") from error
    if choices := field.metadata.get("choices"):
        choose(parsed, choices, f"value for {field.name}")
    if isinstance(parsed, str):
        check_text(field.name, parsed)
        return parsed
    least, most = field.metadata.get("least"), field.metadata.get("most")
    if type(parsed) is int:
        least = -LARGEST_WHOLE if least is None else least
        most = LARGEST_WHOLE if most is None else most
    if least is not None and parsed < least:
        raise UserError(f"{field.name}={quotable(value)} is too small: it must be at least {least:g}")
    if most is not None and parsed > most:
        raise UserError(f"{field.name}={quotable(value)} is too large: it must be at most {most:g}")
    return parsed


def check_text(name: str, text: str) -> None:
    """Refuse what neither config.toml nor the name of a file can hold."""
    if len(text) > LONGEST_TEXT:
        raise UserError(f"{name}={quotable(text)} is too long: it may have {LONGEST_TEXT} characters")
    if "\0" in text:
        raise UserError(f"{name}={quotable(text)} has a null character; leave it out")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UserError(f"{name}={quotable(text)} is not UTF-8; rename the file, or give a link to it another name")


def _convert(hint: Any, value: Any) -> Any:
    if hint is bool:
        return BOOLEANS[str(value).casefold()]
    if isinstance(value, bool):  # Python would treat it as 0 or 1
        raise TypeError(value)
    if hint is int:
        return _to_int(value)
    if not isinstance(value, str | int | float):  # a list or a date of a TOML file
        raise TypeError(value)
    if hint is float:
        return _to_float(value)
    if isinstance(hint, types.UnionType):  # int | str: a number, or a list of them such as "5,3,2"
        return int(value) if str(value).isdecimal() else str(value)
    return hint(value)


def _to_int(value: Any) -> int:
    """Also accepts 1e3 for 1000."""
    number = float(value)
    if not number.is_integer():
        raise ValueError(value)
    return int(number)


def _to_float(value: Any) -> float:
    number = float(value) + 0.0  # never -0.0, which equals 0.0 but is spelt differently
    if not math.isfinite(number):
        raise ValueError(value)
    return number


@functools.cache
def fields_of(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """name -> (field, its type) of a settings class."""
    hints = typing.get_type_hints(cls)
    return {field.name: (field, hints[field.name]) for field in dataclasses.fields(cls)}


def make(cls: type, values: Mapping[str, Any]) -> Any:
    """An instance of a settings class from the values that concern it."""
    known = fields_of(cls)
    return cls(**{name: parse(*known[name], value) for name, value in values.items() if name in known})
