"""Draw the pictures of the documents from the committed results.

python results/pictures.py            docs/images/curve.png, and docs/images/report.png where there is a Chromium

Run it by hand; no test checks them, since other versions of matplotlib and Chromium give other pixels.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from fscil.report.curve import write_curve
from fscil.report.html import write_report
from fscil.results import read_result

FOLDER = Path(__file__).resolve().parent
IMAGES = FOLDER.parent / "docs" / "images"
CURVES = ("limit", "limit-paper", "decoupled-cosine", "decoupled-cosine-same-embedding")


def curve() -> Path:
    """The session curves of CIFAR100; class means on LIMIT's embedding are included as its real rival."""
    results = [
        read_result(path) for name in CURVES for path in sorted((FOLDER / "cifar100").glob(f"{name}-seed*.json"))
    ]
    return write_curve(results, IMAGES / "curve.png")


def report(chromium: str) -> Path:
    """The first screen of a report on glyphs."""
    results = [
        read_result(path)
        for name in ("limit", "decoupled-cosine")
        for path in (FOLDER / "glyphs").glob(f"{name}-seed?.json")
    ]
    results.sort(key=lambda result: (result.preset != "limit", result.seed))
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(results, Path(folder) / "report.html")
        shot = Path(folder) / "report.png"
        subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,870",
                f"--screenshot={shot}", page.as_uri(),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        shutil.copyfile(shot, IMAGES / "report.png")
    return IMAGES / "report.png"


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    print(f"wrote {curve().relative_to(FOLDER.parent)}")
    if chromium := shutil.which("chromium") or shutil.which("google-chrome"):
        print(f"wrote {report(chromium).relative_to(FOLDER.parent)}")
    else:
        print("no Chromium here: docs/images/report.png stays as it is")


if __name__ == "__main__":
    main()
