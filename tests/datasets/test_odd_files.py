"""Named pipes, devices, odd names and bad paths among the data: one line, no wait, no outside program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import EpsImagePlugin, Image

import fscil
from fscil import datasets
from fscil.benchmark import Benchmark
from fscil.datasets import cifar100, decode, folder
from fscil.datasets.folder import FolderOptions
from fscil.encoders import weights
from fscil.errors import UserError
from fscil.images import contents, contents_of_copies
from fscil.learner.listing import photo_files
from photo_trees import write_cub

Make = Callable[[Path], object]


def read(path: object, **options: object) -> Benchmark:
    return folder.load(FolderOptions(path=str(path), **{"way": 2, "shot": 2, "size": 16, **options}))  # type: ignore[arg-type]


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


ODD: dict[str, Make] = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "noise": lambda path: path.symlink_to("/dev/urandom"),
    "loop": link_to_itself,
}


def place(make: Make, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    return path


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize("stream", ["always", "never"])
def test_only_regular_files_are_images(tree: Path, make: Make, stream: str) -> None:
    place(make, tree / "class0" / "0.jpg")
    with pytest.raises(UserError, match=r"class0.0\.jpg cannot be read \("):
        read(tree, stream=stream)


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_only_regular_files_are_manifests_and_orders(tree: Path, tmp_path: Path, make: Make) -> None:
    path = place(make, tmp_path / "list.csv")
    with pytest.raises(UserError, match=r"list\.csv cannot be read \("):
        read(path)
    with pytest.raises(UserError, match="nor a readable text file"):
        read(tree, order=path)


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", ["train", "meta"])
def test_only_regular_files_are_pickles(tmp_path: Path, make: Make, name: str) -> None:
    place(make, tmp_path / cifar100.FOLDER / name)
    with pytest.raises(UserError, match=f"lacks .*{name}"):
        cifar100.load(cifar100.Cifar100Options(), tmp_path)
    with pytest.raises(UserError, match="is damaged or not a CIFAR-100 file"):
        cifar100.read_names(tmp_path / cifar100.FOLDER / name)  # it was a file a moment ago


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_only_regular_files_are_weights_and_photos(tmp_path: Path, make: Make) -> None:
    for name in ("w.pth", "w.safetensors", "model.safetensors"):
        path = place(make, tmp_path / name)
        with pytest.raises(UserError, match=f"weights=.*{name}"):
            weights.read(str(path), "resnet20", None)
    with pytest.raises(UserError, match=r"weights=.*model\.safetensors"):
        weights.read(str(tmp_path), "resnet20", None)
    with pytest.raises(UserError, match=r"there is no image .*w\.pth \("):
        list(photo_files([tmp_path / "w.pth"]))


def test_files_have_a_limit(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MOST_BYTES", 20)
    for stream in ("always", "never"):
        with pytest.raises(UserError, match=r"0\.jpg cannot be read \(larger than 20 bytes\)"):
            read(tree, stream=stream)


def test_no_file_starts_an_outside_program(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(
        EpsImagePlugin, "Ghostscript", lambda *_, **__: started.append(1) or Image.new("RGB", (9, 9)).im
    )
    path = tree / "class0" / "0.jpg"
    Image.new("RGB", (9, 9)).save(path, format="EPS")
    with pytest.raises(UserError, match=r"0\.jpg cannot be read as an image"):
        read(tree)
    assert started == []
    with Image.open(path) as image:
        image.load()
    assert started == [1]  # it is one that Pillow would have opened


@pytest.mark.parametrize("stream", ["always", "never"])
def test_names_of_images_need_not_be_utf8(tree: Path, stream: str) -> None:
    before = read(tree, stream=stream)
    for label in range(7):
        for i in range(6):
            path = tree / f"class{label}" / f"{i}.jpg"
            path.rename(path.with_name(os.fsdecode(b"caf\xe9 %d.jpg" % i)))
    after = read(tree, stream=stream)
    assert after.split_checksum != before.split_checksum
    for digest in (contents, contents_of_copies):
        assert digest(after.test_images) == digest(read(tree, stream=stream).test_images)
    assert len(torch.cat([after.test_images[:], after.pool.images[:]])) > 0


def test_names_of_classes_must_be_utf8(tree: Path) -> None:
    (tree / "class3").rename(tree / os.fsdecode(b"caf\xe9"))
    with pytest.raises(UserError, match=r"the name of class 'caf\\udce9' is not UTF-8; rename it"):
        read(tree)


def test_the_path_must_be_utf8_and_a_folder_around_it_need_not_be(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(tree, outer)
    with pytest.raises(UserError, match=r"caf\\udce9' is not UTF-8; rename"):
        read(outer)
    monkeypatch.chdir(outer)
    assert read(".").title.encode() == b"caf\\udce9"


PHOTO_DATASETS = ("miniimagenet", "cub200", "imagenet100", "imagenet1000", "omniglot")


def verify_at(name: str, root: Path) -> list[str]:
    return datasets.get(name).verify(datasets.data_root(root))


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize("index", ["images.txt", "classes.txt"])
def test_only_regular_files_are_index_files(tmp_path: Path, make: Make, index: str) -> None:
    birds = write_cub(tmp_path, pictures=False)
    place(make, birds.folder / index)
    with pytest.raises(UserError, match=rf"{index} cannot be read \("):
        verify_at("cub200", tmp_path)


IMPOSSIBLE = {
    "null": "a\0b",
    "home of a null": "~a\0b",
    "nobody": "~nosuchuser/x",
    "long name": "x" * 300,
    "long path": "x/" * 3000,
    "inside a file": f"{__file__}/x",
    "lone surrogate": "\ud800",
}


@pytest.mark.parametrize("path", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_paths_are_one_clear_line(tree: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.parent)
    refused: dict[str, Callable[[], object]] = {
        "path": lambda: read(path),
        "order": lambda: read(tree, order=path),
        "verify": lambda: folder.verify(datasets.data_root(Path(path))),
        "root": lambda: cifar100.load(cifar100.Cifar100Options(), datasets.data_root(Path(path))),
        **{f"root of {name}": partial(verify_at, name, Path(path)) for name in PHOTO_DATASETS},
        "weights": lambda: weights.read(path, "resnet20", None),
        "model": lambda: fscil.load(path),
        "photo": lambda: list(photo_files([Path(path)])),
        "photo of a program": lambda: decode.read_bytes(Path(path)),
    }
    for name, call in refused.items():
        with pytest.raises(UserError) as caught:
            call()
        assert "\n" not in str(caught.value), name


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may read everything")
@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_unreadable_folders_are_named(tree: Path, mode: int) -> None:
    for path in (tree / "class0", tree):
        path.chmod(mode)
        try:
            with pytest.raises(UserError, match="cannot be read"):
                read(tree)
        finally:
            path.chmod(0o700)
