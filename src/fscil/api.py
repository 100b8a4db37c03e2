"""The functions that Python programs call: what `fscil run` and `fscil compare` do, without the command line."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Console

from fscil import distributed, runs
from fscil.comparison import compare as compare_methods
from fscil.config import resolve
from fscil.environment import whole_number
from fscil.errors import UserError
from fscil.results import Result


def run(
    method: str,
    benchmark: str,
    *,
    seed: int = 1,
    out: str | PathLike[str] | None = None,
    device: str | None = None,
    root: str | PathLike[str] | None = None,
    quiet: bool = True,
    **settings: Any,
) -> Result:
    """One method on one benchmark with one seed.

    Args:
        method: a method or preset; `fscil methods` lists them
        benchmark: a dataset; `fscil data list` lists them
        seed: of everything random
        out: the run folder, for model, report and all numbers; by default a new one under runs/. If it already
            holds a run of this configuration, that is read if finished and resumed if interrupted.
        device: cpu or cuda; by default cuda if available
        root: the folder of datasets; by default the environment variable FSCIL_DATA
        quiet: show no progress
        settings: as for `fscil run`, for instance epochs=20
    """
    config = resolve(method, benchmark, _overrides(settings), seed)
    folder = Path(out) if out is not None else runs.new_folder(config)
    return runs.finish(config, _environment(folder, device, root), _console(quiet))


def compare(
    benchmark: str,
    methods: str | Sequence[str] = ("limit", "decoupled-cosine"),
    *,
    seeds: int | Sequence[int] = 5,
    out: str | PathLike[str] = "runs/compare",
    device: str | None = None,
    root: str | PathLike[str] | None = None,
    quiet: bool = True,
    **settings: Any,
) -> list[Result]:
    """Every method with every seed, in that order; finished runs in the folder are read, interrupted ones resumed.

    Seeds are a list, or a number of seeds counted from 1. The folder also gets a report of the whole comparison. A
    method ignores settings that only other methods have.
    """
    named = methods.split(",") if isinstance(methods, str) else methods
    numbers = range(1, seeds + 1) if isinstance(seeds, int) else seeds
    environment = _environment(Path(out), device, root)
    return compare_methods(benchmark, named, numbers, _overrides(settings), environment, _console(quiet)).results


def _environment(folder: Path, device: str | None, root: str | PathLike[str] | None) -> runs.RunEnvironment:
    if whole_number("WORLD_SIZE", 1) > 1 and distributed.is_single_process():
        raise UserError("several processes would write to the same folder; start them with torchrun -m fscil run ...")
    runs.read_dataset.cache_clear()  # files may have changed since the last call
    return runs.RunEnvironment(runs.choose_device(device), folder, Path(root) if root is not None else None)


def _overrides(settings: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def _console(quiet: bool) -> Console:
    return Console(stderr=True, quiet=quiet, highlight=False, markup=False, emoji=False)
