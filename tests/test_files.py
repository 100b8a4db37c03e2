from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from fscil.errors import UserError
from fscil.files import write_atomically


def test_writes_the_bytes_and_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "folder" / "a.json", b"one")
    write_atomically(tmp_path / "new" / "folder" / "a.json", b"two")
    assert (tmp_path / "new" / "folder" / "a.json").read_bytes() == b"two"
    assert os.listdir(tmp_path / "new" / "folder") == ["a.json"]


def test_a_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_atomically(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def assert_refused_and_untouched(path: Path, message: str) -> None:
    """Writing must fail in one line, with the old file whole and nothing beside it."""
    before = sorted(os.listdir(path.parent))
    with pytest.raises(UserError, match=message) as caught:
        write_atomically(path, b"x" * 100_000)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(path.parent)) == before


def test_a_file_too_large_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert_refused_and_untouched(path, "cannot write .*File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, full)
    assert_refused_and_untouched(path, "cannot write .*No space left on device")


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*result\.json"):
        write_atomically(tmp_path / "result.json", b"x")
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_bytes(b"old")
    with pytest.raises(UserError, match="cannot write"):
        write_atomically(tmp_path / "runs" / "result.json", b"x")
    assert (tmp_path / "runs").read_bytes() == b"old"
