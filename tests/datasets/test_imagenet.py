"""imagenet100 and imagenet1000: the shuffled order of the classes, the usual folders, and what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscil.datasets.imagenet import IMAGENET100, IMAGENET1000, class_order
from fscil.errors import UserError
from photo_trees import IMAGENET_FOLDER, Tree, write_imagenet


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Files are empty: listing does not look into them."""
    return write_imagenet(tmp_path, used=[])


def test_the_order_is_the_fields() -> None:
    order = class_order()
    assert order[:12] == [54, 7, 894, 512, 126, 337, 988, 11, 284, 493, 133, 783]
    assert sorted(order) == list(range(1000))
    state = np.random.get_state()
    np.random.seed(1993)
    shuffled = list(range(1000))
    np.random.shuffle(shuffled)
    np.random.set_state(state)
    assert order == shuffled


def test_a_hundred_classes_are_the_first_of_the_thousand(tree: Tree) -> None:
    hundred, thousand = IMAGENET100.listing(tree.root), IMAGENET1000.listing(tree.root)
    assert len(thousand.class_names) == 1000
    assert list(hundred.class_names) == list(thousand.class_names[:100])
    assert list(hundred.class_names[:3]) == ["n00000054", "n00000007", "n00000894"]
    assert hundred.paths[0] == tree.folder / "train" / "n00000054" / "n00000054_0000.JPEG"
    assert hundred.paths[-1] == tree.folder / "val" / hundred.names[-1]
    assert (len(thousand.names), thousand.training) == (2000, 1000)


def test_a_class_is_sorted_by_name_and_not_looked_at_file_by_file(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.JPEG", "a.JPEG", "c.JPEG"):
        (tree.folder / "train" / "n00000054" / name).touch()
    looked_at: list[str] = []
    stat = os.stat

    def noted(path: Path, **kinds: Any) -> os.stat_result:
        looked_at.append(str(path))
        return stat(path, **kinds)

    monkeypatch.setattr(os, "stat", noted)
    listing = IMAGENET100.listing(tree.root)
    assert [name.partition("/")[2] for name in listing.names[:4]] == [
        "a.JPEG",
        "b.JPEG",
        "c.JPEG",
        "n00000054_0000.JPEG",
    ]
    assert not [path for path in looked_at if path.endswith(".JPEG")]


@pytest.mark.parametrize("name", ["ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC"])
def test_the_usual_folders_are_found(tree: Tree, name: str) -> None:
    moved = tree.root / name
    (tree.root / "moving").mkdir()
    tree.folder.rename(tree.root / "moving" / "here")
    moved.parent.mkdir(parents=True, exist_ok=True)
    (tree.root / "moving" / "here").rename(moved)
    assert IMAGENET100.listing(tree.root).paths[0].is_relative_to(moved)


def test_a_flat_validation_folder_is_refused(tree: Tree) -> None:
    shutil.rmtree(tree.folder / "val")
    (tree.folder / "val").mkdir()
    (tree.folder / "val" / "ILSVRC2012_val_00000001.JPEG").touch()
    with pytest.raises(UserError, match="val has no class folders; move its images into a folder per class") as caught:
        IMAGENET1000.listing(tree.root)
    assert "\n" not in str(caught.value)
    shutil.rmtree(tree.folder / "val")
    with pytest.raises(UserError, match=r"there is no .*val; put ILSVRC2012"):
        IMAGENET1000.listing(tree.root)


@pytest.mark.parametrize("count", [100, 999])
def test_fewer_classes_cannot_define_the_order(tmp_path: Path, count: int) -> None:
    write_imagenet(tmp_path, used=[], classes=count)
    for dataset in (IMAGENET100, IMAGENET1000):
        with pytest.raises(UserError, match=f"has {count} class folders, not 1000: the order of the classes is a shu"):
            dataset.listing(tmp_path)


def test_missing_classes_empty_folders_and_strays(tree: Tree) -> None:
    (tree.folder / "train" / "n00000054.tar").touch()
    (tree.folder / "val" / "valprep.sh").touch()
    assert len(IMAGENET100.listing(tree.root).names) == 200
    shutil.rmtree(tree.folder / "val" / "n00000500")
    with pytest.raises(UserError, match="val lacks the class n00000500; both parts need the same classes"):
        IMAGENET100.listing(tree.root)
    (tree.folder / "val" / "n00000500").mkdir()
    with pytest.raises(UserError, match=r"class folder .*val/n00000500 is empty"):
        IMAGENET1000.listing(tree.root)


def test_counts_are_checked(tree: Tree) -> None:
    (line,) = IMAGENET100.count_warnings(IMAGENET100.listing(tree.root))
    assert "class n00000054 has 1 test images, not 50, 100 classes in all are wrong" in line
    *_, line = IMAGENET1000.count_warnings(IMAGENET1000.listing(tree.root))
    assert "there are 1000 training and 1000 test images, not 1281167 training and 50000 test" in line


def test_without_data_it_says_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / IMAGENET_FOLDER).mkdir()
    for root in (None, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="put ILSVRC2012, unpacked into train/ and val/") as caught:
            IMAGENET100.listing(root)
        assert "\n" not in str(caught.value)
