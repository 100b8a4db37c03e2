"""Draw the pictures of the documents from the committed results.

python results/pictures.py  docs/images/: curve.png, methods.png, margins.png, learner.png; with a Chromium, report.png

Run it by hand; no test checks them, since other versions of matplotlib and Chromium give other pixels.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # when this file is run, Python looks for modules beside it and not here

from fscil.errors import UserError  # noqa: E402
from fscil.files import write_atomically  # noqa: E402
from fscil.labels import Label, Labels  # noqa: E402
from fscil.report import figures  # noqa: E402
from fscil.report.curve import write_curve  # noqa: E402
from fscil.report.html import write_report  # noqa: E402
from fscil.report.margin_curve import margin_figure  # noqa: E402
from results.accuracy import load_cifar100  # noqa: E402
from results.others import OURS  # noqa: E402
from results.summaries import FOLDER, load, read  # noqa: E402

IMAGES = ROOT / "docs" / "images"
DRAWN = {
    "limit-plus": "limit-plus",
    "decoupled-cosine-plus": "class means, embedding of limit-plus",
    "limit": "limit",
    "limit-paper": "limit-paper",
    "decoupled-cosine-paper": "class means, encoders of limit",
}


def curve() -> Path:
    """Accuracy after every session of CIFAR100."""
    runs = load_cifar100()
    return write_curve([result for name in DRAWN for result in runs[name]], IMAGES / "curve.png")


def methods() -> Path:
    """The same for every method of the paper's comparison, from the encoders of `limit`."""
    runs = [read(FOLDER / folder, file) for folder, file in OURS.values()]
    return write_curve([result for results in runs for result in results], IMAGES / "methods.png")


def margins() -> Path:
    """New over base accuracy on CIFAR100, for every margin."""
    named = Labels([Label(text, "") for text in DRAWN.values()], [])
    runs = load_cifar100()
    figure = margin_figure([runs[name] for name in DRAWN], named)
    write_atomically(IMAGES / "margins.png", figures.png(figure))
    return IMAGES / "margins.png"


def report(chromium: str) -> Path:
    """The first screen of a report on glyphs."""
    runs = load("glyphs", ("limit", "decoupled-cosine"))
    results = [result for its in runs.values() for result in its]
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(results, Path(folder) / "report.html")
        shot = Path(folder) / "report.png"
        subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1180,870",
                f"--screenshot={shot}", page.as_uri(),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        shutil.copyfile(shot, IMAGES / "report.png")
    return IMAGES / "report.png"


def learner() -> Path:
    """Bars: who recognises how many of all test photos, of fitted species and of taught ones."""
    found = json.loads((ROOT / "results" / "learner" / "cub200.json").read_text())["mean and standard error"]
    own = found["fit, then 10 species taught"]
    who = ["fit", "logistic regression, evened, balanced", "logistic regression, evened", "nearest class mean, evened"]
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for i, name in enumerate(who):
        values, errors = zip(*(own[name][what] for what in ("all", "base", "new")), strict=True)
        places = [place + 0.2 * (i - 1.5) for place in range(3)]
        axes.bar(places, values, 0.18, yerr=errors, label=name, color=f"C{i}", error_kw={"linewidth": 0.8})
    axes.set_xticks(range(3), ["all 30 species", "20 fitted", "10 taught from 5 photos"])
    axes.set_ylabel("% of test photos")
    axes.set_ylim(0, 100)
    figure.legend(frameon=False, fontsize=8, loc="outside upper center", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    write_atomically(IMAGES / "learner.png", figures.png(figure))
    return IMAGES / "learner.png"


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for draw in (curve, methods, margins, learner):
        print(f"wrote {draw().relative_to(ROOT)}")
    if chromium := shutil.which("chromium") or shutil.which("google-chrome"):
        print(f"wrote {report(chromium).relative_to(ROOT)}")
    else:
        print("no Chromium here: docs/images/report.png stays as it is")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
