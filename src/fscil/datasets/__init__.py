"""Datasets by name. Other packages add theirs as entry points of the group `fscil.datasets`."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from fscil.datasets import cifar100, cub200, digits, folder, glyphs, imagenet, miniimagenet, omniglot
from fscil.datasets.registry import Dataset, data_root
from fscil.errors import UserError
from fscil.naming import choose, entry_points

__all__ = ["Dataset", "data_root", "get", "names"]

GROUP = "fscil.datasets"
BUILT_IN = {
    each.name: each
    for each in (
        glyphs.DATASET,
        digits.DATASET,
        cifar100.DATASET,
        miniimagenet.DATASET,
        cub200.DATASET,
        *imagenet.DATASETS,
        omniglot.DATASET,
        folder.DATASET,
    )
}


def names() -> list[str]:
    """The built-in datasets, then those of other packages by name; a built-in name cannot be overridden."""
    return [*BUILT_IN, *sorted(_of_other_packages())]


def get(name: str) -> Dataset:
    if name in BUILT_IN:
        return BUILT_IN[name]
    choose(name, names(), "dataset", see="`fscil data list` lists them")
    return _load_entry_point(_of_other_packages()[name])


def _of_other_packages() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def _load_entry_point(point: EntryPoint) -> Dataset:
    try:
        dataset: object = point.load()
    except Exception as error:  # another package's import may raise anything; tell the user which package it was
        raise UserError(
            f"dataset {point.name!r} of {point.value} cannot be imported ({error}); reinstall that package"
        ) from error
    if not isinstance(dataset, Dataset):
        raise UserError(f"dataset {point.name!r}: {point.value} is not an fscil.datasets.Dataset; ask its authors")
    return dataset
