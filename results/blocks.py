"""Write the numbers of README.md and docs/ from the committed files under results/.

python results/blocks.py            writes every block between <!-- results:NAME --> and <!-- /results -->
python results/blocks.py --check    says which documents are out of date, and exits with 1 if there are any

No number inside a block is typed by hand: accuracy.py, choices.py, elsewhere.py, others.py and speed.py
compute them all.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # when this file is run, Python looks for modules beside it and not here

from fscil.errors import UserError  # noqa: E402
from fscil.files import write_atomically  # noqa: E402
from fscil.naming import choose  # noqa: E402
from results import accuracy, choices, elsewhere, others, speed  # noqa: E402

BLOCKS: dict[str, Callable[[], str]] = {
    "short": accuracy.short,
    "claims": accuracy.claims,
    "found": accuracy.found,
    "cifar100": accuracy.cifar100,
    "any-margin": accuracy.any_margin,
    "pairs": accuracy.pairs,
    "ablation": accuracy.ablation,
    "methods": others.methods,
    "method-costs": others.method_costs,
    "basic": others.basic,
    "released-code": others.departures,
    "task-sampling": choices.task_sampling,
    "augmentation": choices.augmentation,
    "set-functions": choices.set_functions,
    "cub200": elsewhere.cub200,
    "cub200-methods": others.on_cub200,
    "resnet18": elsewhere.resnet18,
    "glyphs": partial(elsewhere.on_two_cores, "glyphs"),
    "omniglot": partial(elsewhere.on_two_cores, "omniglot"),
    "digits": elsewhere.digits,
    "inner": elsewhere.inner,
    "speed-short": speed.short,
    "speed-cpu": speed.cpu,
    "speed-sampling": speed.sampling,
    "speed-learner": speed.learner,
    "speed-many": speed.many_classes,
    "speed-run": speed.whole_run,
    "speed-gpu": speed.gpu,
}
BLOCK = re.compile(r"<!-- results:(?P<name>\S+) -->\n(?P<text>.*?)<!-- /results -->", re.DOTALL)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str) -> str:
    """A document with all its blocks rewritten."""
    found = [match["name"] for match in BLOCK.finditer(text)]
    if not len(found) == text.count("<!-- results:") == text.count("<!-- /results -->"):
        raise UserError("a results block is not closed; write <!-- /results --> after each <!-- results:NAME -->")

    def fill(match: re.Match[str]) -> str:
        name = choose(match["name"], BLOCKS, "results block")
        return f"<!-- results:{name} -->\n{BLOCKS[name]().rstrip()}\n<!-- /results -->"

    return BLOCK.sub(fill, text)


def outdated() -> dict[Path, str]:
    """The documents whose blocks do not match results/, with their updated text."""
    texts = {path: path.read_text(encoding="utf-8") for path in documents()}
    return {path: new for path, text in texts.items() if (new := filled(text)) != text}


def main() -> None:
    changed = outdated()
    for path, text in changed.items():
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is out of date; run python results/blocks.py")
        else:
            write_atomically(path, text.encode())
            print(f"wrote {path.relative_to(ROOT)}")
    sys.exit(1 if changed and "--check" in sys.argv[1:] else 0)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
