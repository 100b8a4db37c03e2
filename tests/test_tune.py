from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from fscil import margins
from fscil.config import resolve
from fscil.errors import UserError
from results import tune

ROWS_OF_CIFAR100 = Path(__file__).parent.parent / "results" / "tuning" / "cifar100-rows.txt"


def test_rows_are_run_on_base_classes_and_compared_with_the_preset(
    tiny_dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.txt"
    rows.write_text("# one change a row\n\npower=0.5\npower=0.7 whiten=1  # both\n")
    words = f"{tmp_path / 'out'} --benchmark {tiny_dataset} --preset decoupled-cosine --rows {rows} --seeds 1 2"
    tune.main([*words.split(), "--device", "cpu", "--set", "epochs=2", "base=6"])
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").glob("*/result.json"))]
    assert len(found) == 6
    assert {result["benchmark"] for result in found} == {"tiny-validation"}
    by_seed, summary, chosen = re.findall(r"(?:^\|.*\n)+", (tmp_path / "out" / "tuning.md").read_text(), re.MULTILINE)
    assert [line.split(" | ")[0] for line in by_seed.splitlines()] == [
        "| changed", "| ---", "| decoupled-cosine", "| power=0.5", "| power=0.7 whiten=1",
    ]  # fmt: skip
    values = [result["last"] for result in found[:2]]  # of the preset
    assert f"{values[0]:.2f} / {values[1]:.2f} (**{sum(values) / 2:.2f}**)" in by_seed
    assert "last - decoupled-cosine" in summary
    shown = capsys.readouterr().out
    assert "power=0.7 whiten=1" in shown
    for line in (by_seed, summary):
        assert "| area |" in line
    folders = [path for path in sorted((tmp_path / "out").iterdir()) if "decoupled-cosine-seed" in path.name]
    scores = [margins.read_scores(path, [4, 2]) for path in folders]
    margin = margins.choose_margin(scores)
    assert margin is not None
    last = statistics.fmean(margins.headline_at(each, margin)["last"] for each in scores)
    assert f"| decoupled-cosine | {margin:g} | {last:.2f} ± " in chosen
    assert "costs at most 0.75 points" in " ".join(shown.split())


def test_a_row_has_the_last_word_over_what_is_set_for_all() -> None:
    rows = tune.read_rows("epochs=5", "limit", ["epochs=2", "power=1"])
    assert rows[0].settings == ("validation=classes", "epochs=2", "power=1")
    assert rows[1].settings == ("validation=classes", "power=1", "epochs=5")


@pytest.mark.parametrize(("text", "common"), [("validation=none", []), ("", ["validation=none"])])
def test_nobody_tunes_on_test_images(text: str, common: list[str]) -> None:
    with pytest.raises(UserError, match="always runs with validation=classes"):
        tune.read_rows(text, "limit", common)


def test_the_rows_of_cifar100_are_settings_that_exist() -> None:
    rows = tune.read_rows(ROWS_OF_CIFAR100.read_text(), "limit-plus", [])
    assert len({resolve("limit-plus", "cifar100", row.settings).hash for row in rows}) == len(rows) > 10
