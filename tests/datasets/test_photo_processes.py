"""Preparing photos in processes that are killed, or that work at the same time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cli_call import Fscil
from cli_process import popen
from fscil.datasets import photo_store
from photo_trees import Tree, write_mini

SMALL_SHARDS = """
import os, signal, sys
del sys.argv[1:3]  # -m fscil
from fscil.__main__ import main
from fscil.datasets import photo_store
photo_store.SHARD = 50
"""
KILLED = """
write = photo_store.write_atomically
def write_some(path, data, done=[]):
    done.append(path)
    if len(done) == 4:
        path.with_name(f".{path.name}.abc.part").write_bytes(data[:1000])
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, data)
photo_store.write_atomically = write_some
"""
PREPARE = ("data", "prepare", "miniimagenet", "--root", "data")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(photo_store, "SHARD", 50)
    return write_mini(tmp_path / "data")


def content(tree: Tree) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tree.root / "prepared" / "miniimagenet-92px").iterdir()}


def prepared_at_once(fscil: Fscil, tree: Tree) -> dict[str, bytes]:
    """What one undisturbed process stores; it is then put aside."""
    assert fscil(*PREPARE).code == 0
    found = content(tree)
    (tree.root / "prepared").rename(tree.root / "before")
    assert len(found) == 12
    return found


@pytest.mark.slow
def test_a_killed_preparation_continues_to_the_same_bytes(fscil: Fscil, tree: Tree, tmp_path: Path) -> None:
    expected = prepared_at_once(fscil, tree)
    killed = popen(*PREPARE, cwd=tmp_path, by=("-c", f"{SMALL_SHARDS}{KILLED}main()"))
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    found = content(tree)
    assert {name: data for name, data in found.items() if name.endswith(".safetensors")}.items() < expected.items()
    assert [name for name in found if name.endswith(".part")]  # the one that was being written
    assert fscil(*PREPARE).code == 0
    assert content(tree) == expected


@pytest.mark.slow
def test_two_processes_at_once_store_the_same_bytes(fscil: Fscil, tree: Tree, tmp_path: Path) -> None:
    expected = prepared_at_once(fscil, tree)
    both = [popen(*PREPARE, cwd=tmp_path, by=("-c", f"{SMALL_SHARDS}main()")) for _ in range(2)]
    for process in both:
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert content(tree) == expected


def test_a_failure_between_shards_keeps_those_that_are_done(fscil: Fscil, tree: Tree) -> None:
    expected = prepared_at_once(fscil, tree)
    spoiled = tree.folder / "images" / "n00000050_0000.jpg"  # number 250 of 600
    good, times = spoiled.read_bytes(), spoiled.stat()
    spoiled.write_bytes(b"")
    assert fscil(*PREPARE).code == 2
    assert len(content(tree)) == 5
    spoiled.write_bytes(good)
    os.utime(spoiled, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fscil(*PREPARE).code == 0
    assert content(tree) == expected
