"""miniimagenet: both layouts, and what is refused: pickles, the split of few-shot learning, damaged csv files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fscil.datasets.miniimagenet import MINIIMAGENET
from fscil.errors import UserError
from photo_trees import Tree, write_mini


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return write_mini(tmp_path)


def test_classes_are_sorted_and_images_in_the_order_of_the_csv(tree: Tree) -> None:
    tree.edit("split/train.csv", lambda lines: [lines[0], *lines[:0:-1]])
    listing = MINIIMAGENET.listing(tree.root)
    assert list(listing.class_names) == tree.classes
    assert listing.names[0] == "n00000000/n00000000_0004.jpg"
    assert listing.names[499] == "n00000099/n00000099_0000.jpg"
    assert listing.paths[0] == tree.folder / "images" / "n00000000_0004.jpg"
    assert listing.training == 500
    assert listing.labels[::5] == [*range(100), *range(0, 100, 5)]


@pytest.mark.parametrize("name", ["mini-imagenet", "MINI-ImageNet"])
def test_folders_and_csv_files_in_other_places(tree: Tree, name: str) -> None:
    before = MINIIMAGENET.listing(tree.root)
    for part in ("train.csv", "test.csv"):
        (tree.folder / "split" / part).rename(tree.folder / part)
    tree.folder.rename(tree.root / name)
    after = MINIIMAGENET.listing(tree.root)
    assert (after.names, after.labels) == (before.names, before.labels)
    assert after.paths[0].parent == tree.root / name / "images"


def test_class_folders_give_the_same_listing(tree: Tree, tmp_path: Path) -> None:
    other = write_mini(tmp_path / "other", indexed=False)
    one, two = MINIIMAGENET.listing(tree.root), MINIIMAGENET.listing(other.root)
    assert (one.names, one.labels, one.training) == (two.names, two.labels, two.training)
    assert list(two.paths)[-1] == other.folder / "test" / two.names[-1]


def test_stray_files_beside_classes_do_not_matter(tmp_path: Path) -> None:
    tree = write_mini(tmp_path, indexed=False)
    before = MINIIMAGENET.listing(tree.root)
    for stray in ("train/readme.txt", "test/.DS_Store", "train/n00000003/.hidden", "train/n00000003/Thumbs.db"):
        (tree.folder / stray).write_bytes(b"x")
    assert MINIIMAGENET.listing(tree.root).names == before.names


def test_wrong_counts_are_a_warning_in_words(tree: Tree) -> None:
    tree.edit("split/test.csv", lambda lines: [*lines[:-1], "another.jpg,n00000098"])
    with pytest.raises(UserError, match=r"test\.csv has 99 classes, not 100"):
        MINIIMAGENET.listing(tree.root)
    tree.edit("split/test.csv", lambda lines: [*lines, "n00000099_0005.jpg,n00000099"])
    (line,) = MINIIMAGENET.count_warnings(MINIIMAGENET.listing(tree.root))
    assert line == (
        "miniimagenet: class n00000000 has 5 training images, not 500, 100 classes in all are wrong; "
        "numbers may not be comparable"
    )


@pytest.mark.parametrize("name", ["mini-imagenet-cache-train.pkl", "train.pickle"])
@pytest.mark.parametrize("inside", [True, False])
def test_pickles_are_refused_with_what_works(tmp_path: Path, name: str, inside: bool) -> None:
    folder = tmp_path / "mini-imagenet" if inside else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"cos\nsystem\n")
    with pytest.raises(UserError, match=rf"{name} is a pickle, .* not loaded.*images/ and split/train\.csv") as caught:
        MINIIMAGENET.listing(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_pickle_beside_good_data_does_not_matter(tree: Tree) -> None:
    (tree.folder / "cache.pkl").write_bytes(b"x")
    (tree.root / "cache.pkl").write_bytes(b"x")
    assert len(MINIIMAGENET.listing(tree.root).names) == 600


@pytest.mark.parametrize("indexed", [True, False])
def test_the_split_of_few_shot_learning_is_explained(tmp_path: Path, indexed: bool) -> None:
    tree = write_mini(tmp_path, indexed=indexed, classes=64)
    with pytest.raises(UserError, match=r"has 64 classes, the split of few-shot.*all 100 classes.*CEC-CVPR2021"):
        MINIIMAGENET.listing(tree.root)


def row(number: int, text: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[: number - 1], text, *lines[number:]]


DEFECTS: dict[str, tuple[str, Callable[[list[str]], list[str]], str]] = {
    "no header": ("train", lambda lines: lines[1:], r"first line of .*train\.csv must be filename,label; add it"),
    "empty": ("train", lambda lines: [], r"first line of .*train\.csv must be filename,label"),
    "listed twice": ("train", lambda lines: [*lines, lines[1]], "line 502: n00000000_0000.jpg is listed twice"),
    "in both parts": ("test", lambda lines: [*lines, "n00000000_0000.jpg,n00000000"], "line 102: .* is listed twice"),
    "outside": ("test", row(2, "../x.jpg,n00000000"), r"line 2: '\.\./x\.jpg' is not the name of a file"),
    "absolute": ("test", row(2, "/etc/passwd,n00000000"), "line 2: '/etc/passwd' is not the name of a file"),
    "class leads out": ("test", row(2, "x.jpg,../x"), r"line 2: '\.\./x' is not the name of a file or folder"),
    "one cell": ("test", row(3, "x.jpg"), "line 3: 'x.jpg' is not a file name, a comma and a class"),
    "three cells": ("test", row(3, "x.jpg,n00000001,1"), "line 3: .* is not a file name, a comma and a class"),
    "no class": ("test", row(3, "x.jpg,"), "line 3: '' is not the name"),
    "other class": ("test", row(2, "x.jpg,n5"), r"line 2: class n5 is not in train\.csv; all 100 classes must be"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_of_csv_files_are_one_clear_line(tree: Tree, name: str) -> None:
    part, change, message = DEFECTS[name]
    tree.edit(f"split/{part}.csv", change)
    with pytest.raises(UserError, match=message) as caught:
        MINIIMAGENET.listing(tree.root)
    assert "\n" not in str(caught.value)


def test_what_is_missing_or_ambiguous_is_named(tree: Tree) -> None:
    (tree.folder / "split" / "test.csv").rename(tree.folder / "other.csv")
    with pytest.raises(UserError, match=r"lacks split/test\.csv; put a folder miniimagenet"):
        MINIIMAGENET.listing(tree.root)
    for part in ("train", "test"):
        (tree.folder / part).mkdir()
    with pytest.raises(UserError, match="has images/ as well as train/ and test/"):
        MINIIMAGENET.listing(tree.root)
    shutil.rmtree(tree.folder / "images")
    with pytest.raises(UserError, match="train has 0 classes, not 100"):
        MINIIMAGENET.listing(tree.root)
    (tree.folder / "test").rmdir()
    with pytest.raises(UserError, match="has neither images/ nor train/ and test/; put a folder"):
        MINIIMAGENET.listing(tree.root)
    (tree.root / "mini-imagenet").mkdir()
    with pytest.raises(UserError, match="are both there; rename or remove one"):
        MINIIMAGENET.listing(tree.root)


def test_defects_of_class_folders(tmp_path: Path) -> None:
    tree = write_mini(tmp_path, indexed=False)
    inner = tree.folder / "train" / "n00000004" / "more"
    inner.mkdir()
    with pytest.raises(UserError, match="n00000004/more is a folder among the images of a class"):
        MINIIMAGENET.listing(tree.root)
    inner.rmdir()
    for file in (tree.folder / "test" / "n00000004").iterdir():
        file.unlink()
    with pytest.raises(UserError, match=r"class folder .*test/n00000004 is empty; copy or unpack"):
        MINIIMAGENET.listing(tree.root)
    (tree.folder / "test" / "n00000004").rmdir()
    with pytest.raises(UserError, match="test lacks the class n00000004; both parts need the same classes"):
        MINIIMAGENET.listing(tree.root)
