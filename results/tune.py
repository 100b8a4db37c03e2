"""Try settings of a preset on base classes alone.

python results/tune.py OUT --benchmark cifar100 --preset limit-plus --rows results/tuning/cifar100-rows.txt --seeds 1 2
python results/tune.py OUT --rows FILE --set epochs=100 batch=512

Every row is `fscil run PRESET BENCHMARK validation=classes KEY=VALUE ...`: some base classes arrive as new ones and are
tested on held-out training images, so no test image influences a decision. The rows file has one row's settings on
each line; # begins a comment. The preset without changes is always the first row, and the others are compared with it.
--set holds for all rows. For every row the margin is chosen by the one rule that all presets follow (docs/protocol.md,
"Numbers"). The tables are printed and written to OUT/tuning.md; the same command after an interruption continues where
it stopped.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fscil import grid, margins, runs
from fscil.config import split_override
from fscil.errors import UserError
from fscil.files import write_atomically

RULE = (
    f"With the margin of highest harmonic mean that costs at most {margins.COST:g} points of the best last-session "
    "accuracy of any margin"
)


def read_rows(text: str, preset: str, common: Sequence[str]) -> list[grid.Row]:
    """The unchanged preset, then a row for each line that holds settings."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    rows = []
    for own in ([], *filter(None, lines)):
        keys = {split_override(setting)[0] for setting in own}
        if "validation" in keys | {split_override(setting)[0] for setting in common}:
            raise UserError("tuning always runs with validation=classes; leave validation out")
        shared = [setting for setting in common if split_override(setting)[0] not in keys]
        rows.append(grid.Row(" ".join(own) or preset, preset, ("validation=classes", *shared, *own)))
    return rows


def seed_by_seed(groups: grid.Groups) -> list[list[str]]:
    """Every seed's value and the mean, as the tables of results/tuning/ have them."""
    lines = [["changed", *grid.MEASURES.values()]]
    for name, results in groups.items():
        columns = [[getattr(result, key) for result in results] for key in grid.MEASURES]
        lines.append(
            [name, *(" / ".join(f"{v:.2f}" for v in c) + f" (**{statistics.fmean(c):.2f}**)" for c in columns)]
        )
    return lines


def chosen_margins(groups: grid.Groups) -> list[list[str]]:
    """The margin that the rule chooses for every row, and the means over the seeds that it gives."""
    lines = [["row", "margin", "last", "base", "new", "HM"]]
    for name, results in groups.items():
        scores = [margins.read_scores(Path(result.folder), result.classes_per_session) for result in results]
        margin = margins.choose_margin(scores)
        if margin is None:
            raise UserError(f"{name}: without new classes there is no margin to choose")
        found = [margins.headline_at(each, margin) for each in scores]
        values = [[each["last"], each["base"], each["new"], each["harmonic_mean"]] for each in found]
        lines.append([name, f"{margin:g}", *map(grid.mean_and_deviation, zip(*values, strict=True))])
    return lines


def tune(
    benchmark: str,
    rows: Sequence[grid.Row],
    seeds: Sequence[int],
    environment: runs.RunEnvironment,
    out: Console,
    progress: Console,
) -> Path:
    """Run all rows, print their means and write tuning.md."""
    jobs = grid.build_jobs(benchmark, rows, seeds, prefix=f"{benchmark}-validation")
    groups = grid.run_grid(jobs, environment, progress)
    chosen = chosen_margins(groups)
    out.print(grid.terminal(grid.cells(groups)), crop=False)
    out.print(f"\n{RULE}:")
    out.print(grid.terminal(chosen), crop=False)
    common = " ".join(rows[0].settings)
    text = (
        f"`fscil run {rows[0].preset} {benchmark} {common} ...`, seeds {', '.join(map(str, seeds))}.\n\n"
        f"{grid.markdown(seed_by_seed(groups))}\n"
        f"Means ± standard deviations over the seeds; differences in pairs of the same seed ± their standard error:\n\n"
        f"{grid.markdown(grid.cells(groups))}\n"
        f"{RULE}:\n\n"
        f"{grid.markdown(chosen)}"
    )
    write_atomically(environment.folder / "tuning.md", text.encode())
    return environment.folder / "tuning.md"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the runs and of tuning.md")
    parser.add_argument("--benchmark", default="cifar100")
    parser.add_argument("--preset", default="limit")
    parser.add_argument("--rows", type=Path, required=True, help="file with one row's settings on each line")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of all rows")
    parser.add_argument("--device", help="cpu or cuda; default: cuda where there is one")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each in a process of its own")
    parser.add_argument("--root", type=Path, help="folder of datasets; default: FSCIL_DATA")
    args = parser.parse_args(words)
    if args.jobs < 1:
        parser.error("--jobs: at least 1")
    try:
        text = args.rows.read_text(encoding="utf-8")
    except OSError as error:
        parser.error(f"cannot read {args.rows}: {error.strerror}")
    environment = runs.RunEnvironment(runs.choose_device(args.device), args.out, args.root, at_once=args.jobs)
    rows = read_rows(text, args.preset, args.set)
    out = Console(highlight=False, markup=False)
    path = tune(args.benchmark, rows, args.seeds, environment, out, Console(stderr=True, highlight=False))
    out.print(f"table  {path}", soft_wrap=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
