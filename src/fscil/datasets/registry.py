"""What a dataset is to the rest of the package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fscil.benchmark import Benchmark
from fscil.errors import UserError
from fscil.files import expand_user

TRIAL = "the seed of the shots; 1 is the standard draw"
LAST_TRIAL = 2**32 - 1  # what seeds NumPy


def _nothing_more(options: Any) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True)
class Dataset:
    """A source of benchmarks. Every options class has `trial`, the seed of the shots; 1 is the standard split."""

    name: str
    description: str  # one line for `fscil data list`
    options: type  # frozen dataclass of the dataset's options, every one with a default
    load: Callable[[Any, Path | None], Benchmark]  # (options, root); the embedded datasets need no root
    defaults: Mapping[str, object]  # settings that suit this dataset, such as a recipe; some method must have each
    prepare: Callable[[Path | None], str]  # fetches or builds what load needs; one line of what was done
    verify: Callable[[Path | None], list[str]]  # "ok: ..." or "warning: ..." per check; UserError if it is unusable
    option_defaults: Callable[[Any], Mapping[str, object]] = field(default=_nothing_more)

    def defaults_for(self, options: Any) -> dict[str, object]:
        """The defaults, with those that depend on the options (such as an encoder for the image size)."""
        return {**self.defaults, **self.option_defaults(options)}


def data_root(root: Path | None = None) -> Path | None:
    """Where datasets live: the given folder, else the one that FSCIL_DATA names, else nowhere."""
    named = str(root) if root is not None else os.environ.get("FSCIL_DATA", "").strip()
    if "\0" in named:
        raise UserError(f"the data folder {named!r} cannot exist: its name has a null character; correct --root")
    return expand_user(named) if named else None
