from __future__ import annotations

import io
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.datasets import safe_pickle

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 12) + 200


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("array", [ARRAY, np.asfortranarray(ARRAY), ARRAY.astype(">i4"), ARRAY / 7, ARRAY > 210])
def test_arrays_come_back(tmp_path: Path, protocol: int, array: np.ndarray[Any, Any]) -> None:
    content = {"data": array, "fine_labels": [1, 2], "name": "x", "none": None, "pair": (1.5, True)}
    found = safe_pickle.load(write(tmp_path / "p", pickle.dumps(content, protocol)))
    np.testing.assert_array_equal(found.pop("data"), array)
    assert found == {"fine_labels": [1, 2], "name": "x", "none": None, "pair": (1.5, True)}


@pytest.mark.parametrize("core", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
@pytest.mark.parametrize(("encoding", "key"), [("bytes", b"data"), ("latin1", "data")])
def test_pickles_as_python_2_writes_them(tmp_path: Path, core: bytes, encoding: str, key: Any) -> None:
    """Strings of that time are bytes of no declared encoding; the official files are made of them."""
    raw = ARRAY.tobytes()

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    empty = b"c" + core + b"\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + string(b"b") + b"tR"
    dtype = (
        b"cnumpy\ndtype\n("
        + string(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + string(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    state = b"(K\x01(K\x02K\x0ct" + dtype + b"\x89" + string(raw) + b"tb"
    content = b"\x80\x02}" + string(b"data") + empty + state + b"s."
    pickletools.dis(content, io.StringIO())  # is a well-formed program
    found = safe_pickle.load(write(tmp_path / "p", content), encoding=encoding)
    np.testing.assert_array_equal(found[key], ARRAY)


class Payload:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_planted_payload_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    planted = tmp_path / "was_run"
    content = pickle.dumps({"data": ARRAY, "x": Payload(f"touch {planted}")}, protocol)
    path = write(tmp_path / "p", content)
    with pytest.raises(safe_pickle.Refused, match=r"system"):
        safe_pickle.load(path)
    assert not planted.exists()
    pickle.loads(content)
    assert planted.exists()  # the payload is a live one


@pytest.mark.parametrize(
    "value",
    [
        print,
        np.dtype,
        np.array(["a", None], dtype=object),
        np.zeros(2, dtype=[("a", "u1"), ("b", "O")]),
        {1, 2},
        np.datetime64("2020-01-01"),
        1j,
        Path("x"),
    ],
)
def test_anything_but_plain_data_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(safe_pickle.Refused):
        safe_pickle.load(write(tmp_path / "p", pickle.dumps([value])))


def test_codecs_can_only_encode_latin1(tmp_path: Path) -> None:
    content = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R."
    with pytest.raises(safe_pickle.Refused):
        safe_pickle.load(write(tmp_path / "p", content))


def test_a_pickle_cannot_change_what_later_files_are_read_with(tmp_path: Path) -> None:
    # numpy.ndarray, then a state that sets its attribute "value": the stand-in of this file alone is touched.
    content = b"\x80\x02cnumpy\nndarray\nN}X\x05\x00\x00\x00valueK\x01s\x86b."
    with pytest.raises(Exception):  # noqa: B017, PT011  # which one is pickle's affair
        safe_pickle.load(write(tmp_path / "p", content))
    found = safe_pickle.load(write(tmp_path / "q", pickle.dumps(ARRAY)))
    np.testing.assert_array_equal(found, ARRAY)


def doubled(start: bytes, join: bytes) -> bytes:
    """Keeps what it has under number 0 and joins it with itself, 60 times."""
    return start + b"q\x000" + (join.replace(b"x", b"h\x00") + b"q\x000") * 60 + b"h\x00"


PAIRS = doubled(b")", b"xx\x86")
LATIN1 = b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R"
GROWING = {
    "pairs": b"\x80\x02" + PAIRS + b".",
    "lists": b"\x80\x02" + doubled(b"]", b"](xxe") + b".",
    "dictionaries": b"\x80\x02" + doubled(b"}", b"}(K\x01xK\x02xu") + b".",
    "a key": b"\x80\x02}" + PAIRS + b"Ns.",
    "one of several keys": b"\x80\x02}(" + PAIRS + b"Nu.",
    "a key of the oldest protocol": b"(" + PAIRS + b"Nd.",
    "a member of a set": b"\x80\x04\x8f(" + PAIRS + b"\x90.",
    "a dtype": b"\x80\x02cnumpy\ndtype\n" + doubled(b"]", b"](xxe") + b"\x85R.",
    "an encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00a" + PAIRS + b"\x86R.",
    "encoded text": b"\x80\x02X\x10\x27\x00\x00" + b"a" * 10_000 + b"q\x010(" + LATIN1 * 50 + b"l.",
    "depth": b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".",
    "itself": b"\x80\x02]q\x00h\x00a.",
    "a claimed length": b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"a.",
    "a memo of a large number": b"\x80\x02]r\xff\xff\xff\x7f.",
}


@pytest.mark.parametrize("content", GROWING.values(), ids=GROWING)
def test_a_small_file_does_not_grow(content: bytes) -> None:
    try:
        found = safe_pickle.loads(content)
    except (pickle.UnpicklingError, EOFError):
        return
    assert found == []


def test_a_file_of_many_objects_or_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "p", pickle.dumps(list(range(20))))
    assert safe_pickle.load(path) == list(range(20))
    monkeypatch.setattr(safe_pickle, "MOST_OBJECTS", 20)
    with pytest.raises(safe_pickle.Refused, match="more than 20 objects"):
        safe_pickle.load(path)
    monkeypatch.setattr(safe_pickle, "MOST_BYTES", 20)
    with pytest.raises(OSError, match="larger than 20 bytes"):
        safe_pickle.load(path)


FRAGMENTS = [
    *(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n"),
    *(b"cos\nsystem\n", b"cbuiltins\neval\n", b"X\x04\x00\x00\x00true", b"X\x02\x00\x00\x00u1", b"U\x01x"),
    *(b"K\x01", b"N", b"]", b"}", b"(", b")", b"t", b"\x85", b"\x86", b"\x87"),  # numbers, containers
    *(b"a", b"s", b"u", b"R", b"b", b"\x81", b"\x93", b"o", b"2", b"0"),  # append, call, set the state, make
]


def is_data(value: object) -> bool:
    if isinstance(value, dict):
        return all(is_data(key) and is_data(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(is_data(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12))
def test_no_program_of_these_fragments_gives_anything_but_data(fragments: list[bytes]) -> None:
    content = b"\x80\x04" + b"".join(fragments) + b"."
    try:
        found = safe_pickle.loads(content)
    except Exception:
        return
    assert is_data(found)
