"""Reads pickles of plain data: arrays of numbers, lists, dicts, numbers, text. A pickle is a program; it is not run.

Every name that a pickle asks for is looked up in a short table of our own stand-ins. Not even NumPy's own functions
are called with values from the file: a forged dtype can make them read memory as objects.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

NUMBER_KINDS = "biuf"  # booleans, signed and unsigned integers, floats


class Refused(pickle.UnpicklingError):
    """The file asks for something that is not plain data."""


class _Dtype:
    """Stands in for numpy.dtype(code, align, copy) followed by its state (version, byte order, ...)."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.dtype = np.dtype(_text(code))
        if self.dtype.kind not in NUMBER_KINDS:
            raise Refused(f"arrays of {self.dtype} are not read")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text(state[1])
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder("<" if order == "<" else ">")


class _Array:
    """Stands in for the empty array that a pickle makes first and fills with its state afterwards."""

    value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        self.value = _array(raw, dtype, shape, "F" if fortran else "C")


def _array(raw: str | bytes | bytearray, dtype: _Dtype, shape: tuple[int, ...], order: str) -> np.ndarray[Any, Any]:
    if isinstance(raw, str):  # what encoding="latin1" makes of Python 2's bytes
        raw = raw.encode("latin1")
    return np.frombuffer(raw, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def _from_buffer(raw: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str, *_: object) -> _Array:
    """How protocol 5 builds an array."""
    array = _Array()
    array.value = _array(raw, dtype, shape, order)
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Python 3 writes bytes into protocol 2 as latin1 text."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise Refused(f"_codecs.encode with {encoding!r}")
    return text.encode("latin1")


def _stand_ins() -> dict[tuple[str, str], Callable[..., object]]:
    """Created for each file, since a pickle may set attributes on whatever it is given."""
    array, dtype = type("Array", (_Array,), {}), type("Dtype", (_Dtype,), {})
    table: dict[tuple[str, str], Callable[..., object]] = {
        ("numpy", "ndarray"): array,
        ("numpy", "dtype"): dtype,
        ("_codecs", "encode"): lambda text, encoding: _encode(text, encoding),
    }
    for core in ("numpy.core", "numpy._core"):  # NumPy 1 and 2
        table[f"{core}.multiarray", "_reconstruct"] = lambda *_: array()
        table[f"{core}.numeric", "_frombuffer"] = lambda *arguments: _from_buffer(*arguments)
    return table


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, encoding: str) -> None:
        super().__init__(file, encoding=encoding, fix_imports=False)
        self.table = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.table[module, name]
        except KeyError:
            raise Refused(f"it asks for {module}.{name}") from None


def load(path: Path, encoding: str = "bytes") -> Any:
    """The data of a pickle. Python 2's strings come as bytes or, with encoding="latin1", as text.

    Raises Refused for anything but plain data, and other exceptions, as pickle does, for files that are not pickles.
    """
    with path.open("rb") as file:
        return _plain(_Unpickler(file, encoding).load())


def _plain(value: Any) -> Any:
    """The value with arrays in place of their stand-ins; anything else that is not data is refused."""
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray):
        return value
    raise Refused(f"it holds a {type(value).__name__}")


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
