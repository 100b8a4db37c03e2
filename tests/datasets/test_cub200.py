"""cub200: the public files give the published sessions; every defect of an index file is one clear line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fscil.datasets import data_root
from fscil.datasets.cub200 import CUB200
from fscil.errors import UserError
from photo_trees import CUB_FOLDER, Tree, write_cub


@pytest.fixture
def birds(tmp_path: Path) -> Tree:
    return write_cub(tmp_path, pictures=False)


def test_real_data_give_the_published_sessions() -> None:
    root = data_root(None)
    if root is None or not (root / CUB_FOLDER / "images.txt").is_file():
        pytest.skip(f"needs {CUB_FOLDER} under FSCIL_DATA")
    listing = CUB200.listing(root)
    assert CUB200.session_checksums(listing) == list(CUB200.published)
    training, test = listing.counts()
    assert sum(training[label] for label in range(100)) == 3000
    assert sum(test[label] for label in range(100)) == 2864
    assert sorted(training.values())[:7] == [29] * 6 + [30]
    assert listing.class_names[0] == "001.Black_footed_Albatross"
    assert (listing.paths[0].is_file(), listing.paths[-1].is_file()) == (True, True)
    assert CUB200.count_warnings(listing) == []


def test_classes_by_number_and_images_in_the_order_of_the_index(birds: Tree) -> None:
    birds.edit("classes.txt", lambda lines: lines[::-1])
    listing = CUB200.listing(birds.root)
    assert list(listing.class_names) == birds.classes
    first = [f"001.Bird_0/Bird_0_{number:04d}.jpg" for number in (6, 5, 4, 3, 2)]
    assert list(listing.names[:6]) == [*first, "002.Bird_1/Bird_1_0006.jpg"]
    assert listing.names[1000] == "001.Bird_0/Bird_0_0001.jpg"
    assert listing.training == 1000
    assert listing.labels[4:6] == [0, 1]
    assert listing.paths[1000] == birds.folder / "images" / "001.Bird_0" / "Bird_0_0001.jpg"


def test_class_folders_are_sorted_by_name(tmp_path: Path) -> None:
    tree = write_cub(tmp_path, indexed=False, pictures=False)
    tree.folder.rename(tmp_path / "cub200")
    listing = CUB200.listing(tmp_path)
    assert list(listing.class_names) == tree.classes
    assert list(listing.names[:2]) == ["001.Bird_0/Bird_0_0002.jpg", "001.Bird_0/Bird_0_0003.jpg"]
    assert listing.paths[0] == tmp_path / "cub200" / "train" / listing.names[0]
    assert listing.paths[-1] == tmp_path / "cub200" / "test" / listing.names[-1]
    assert len(listing.paths) == 1200


def test_other_counts_and_other_files_are_warnings(birds: Tree) -> None:
    listing = CUB200.listing(birds.root)
    (line,) = CUB200.count_warnings(listing)
    assert "there are 1000 training and 200 test images, not 5994 training and 5794 test" in line


def set_line(number: int, text: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[: number - 1], text, *lines[number:]]


DEFECTS: dict[str, tuple[str, Callable[[list[str]], list[str]], str]] = {
    "outside": ("images.txt", set_line(2, "2 ../secret.jpg"), "line 2: '../secret.jpg' is not in the folder of"),
    "outside a class": (
        "images.txt",
        set_line(2, "2 001.Bird_0/../../x.jpg"),
        r"line 2: '../../x.jpg' is not the name",
    ),
    "absolute": ("images.txt", set_line(2, "2 /etc/passwd"), "line 2: '/etc/passwd' is not in the folder of"),
    "no number": ("images.txt", set_line(3, "x 001.Bird_0/y.jpg"), "line 3: 'x' is not a number"),
    "odd number": ("images.txt", set_line(3, "² 001.Bird_0/y.jpg"), "line 3: '²' is not a number"),
    "no name": ("images.txt", set_line(3, "3"), "line 3: '' is not in the folder"),
    "null": ("images.txt", set_line(3, "3 001.Bird_0/\0"), "line 3: .* is not the name"),
    "number twice": ("images.txt", set_line(3, "2 001.Bird_0/y.jpg"), "line 3: number 2 is there twice"),
    "file twice": ("images.txt", set_line(2, "2 001.Bird_0/Bird_0_0006.jpg"), "line 2: .*0006.jpg is listed twice"),
    "other class": ("images.txt", set_line(2, "2 002.Bird_1/y.jpg"), "line 2: .* is not in the folder of its class 1"),
    "class no number": ("image_class_labels.txt", set_line(1, "1 one"), "line 1: 'one' is not a number"),
    "class unknown": ("image_class_labels.txt", set_line(1, "1 201"), r"line 1: class 201 is not in classes\.txt"),
    "label missing": (
        "image_class_labels.txt",
        lambda lines: lines[1:],
        "image 1 is not in both images.txt and image_",
    ),
    "part missing": ("train_test_split.txt", lambda lines: lines[:-1], "image 1200 is not in both images.txt and tr"),
    "part odd": ("train_test_split.txt", set_line(4, "4 2"), "line 4: '2' is neither 1 .training. nor 0"),
    "classes missing": ("classes.txt", lambda lines: lines[:150], "has 150 classes, not 200"),
    "class leads out": ("classes.txt", set_line(7, "7 .."), "line 7: '..' is not the name"),
    "class twice": ("classes.txt", set_line(2, "2 001.bird_0"), "have the same name"),
    "empty": ("images.txt", lambda lines: [], "image 1 is not in both"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_of_index_files_are_one_clear_line(birds: Tree, name: str) -> None:
    index, change, message = DEFECTS[name]
    birds.edit(index, change)
    with pytest.raises(UserError, match=message) as caught:
        CUB200.listing(birds.root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("index", ["images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt"])
def test_missing_and_binary_index_files_are_named(birds: Tree, index: str) -> None:
    (birds.folder / index).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=rf"{index} is not text in UTF-8; unpack CUB_200_2011\.tgz"):
        CUB200.listing(birds.root)
    (birds.folder / index).unlink()
    with pytest.raises(UserError, match=rf"{index} cannot be read .*; unpack CUB_200_2011\.tgz"):
        CUB200.listing(birds.root)


def test_what_could_mean_two_things_is_refused(birds: Tree) -> None:
    shutil.copytree(birds.folder, birds.root / "cub200")
    with pytest.raises(UserError, match=r"CUB_200_2011 and .*cub200 are both there; rename or remove one"):
        CUB200.listing(birds.root)
    shutil.rmtree(birds.root / "cub200")
    for part in ("train", "test"):
        (birds.folder / part).mkdir()
    with pytest.raises(UserError, match=r"has images\.txt as well as train/ and test/; keep only one"):
        CUB200.listing(birds.root)


def test_without_data_it_says_where_to_get_them(tmp_path: Path) -> None:
    for root in (None, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=r"unpack CUB_200_2011\.tgz"):
            CUB200.listing(root)
