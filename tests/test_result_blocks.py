"""The numbers of README.md and docs/ are those of results/."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fscil.errors import UserError
from fscil.results import read_result
from results import accuracy, blocks, speed


def test_documents_say_what_the_results_say() -> None:
    assert [path.name for path in blocks.outdated()] == []


def test_every_block_stands_in_a_document() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in blocks.documents())
    assert {name for name, _ in blocks.BLOCK.findall(text)} == set(blocks.BLOCKS)


def test_a_changed_number_is_found_and_written_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n<!-- results:speed-short -->\n{speed.short()}\n<!-- /results -->\nafter 12\n")
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["blocks.py", "--check"])
    assert blocks.outdated() == {}
    right = document.read_text()
    document.write_text(re.sub(r"\d+ seconds", "7 seconds", right))
    with pytest.raises(SystemExit, match="1"):
        blocks.main()
    assert "7 seconds" in document.read_text()  # it was only checked
    monkeypatch.setattr(sys, "argv", ["blocks.py"])
    with pytest.raises(SystemExit, match="0"):
        blocks.main()
    assert document.read_text() == right


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- results:shorrt -->\n<!-- /results -->", "unknown results block 'shorrt': did you mean 'short'"),
        ("<!-- results:short -->\n", "not closed"),
        ("<!-- results:short -->\n<!-- results:glyphs -->\n<!-- /results -->", "not closed"),
    ],
)
def test_broken_markers_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        blocks.filled(text)


def test_tables_hold_means_over_the_seeds() -> None:
    last = [read_result(accuracy.FOLDER / "cifar100" / f"limit-seed{seed}.json").last for seed in range(21, 26)]
    (line,) = [line for line in accuracy.cifar100().splitlines() if line.startswith("| **limit**, 5 seeds |")]
    assert line.split(" | ")[9] == f"{sum(last) / 5:.2f}"


def test_words_follow_the_sign() -> None:
    assert [accuracy.points(gap) for gap in (1.234, -0.5)] == ["1.23 points above", "0.50 points below"]


def test_it_runs_as_a_script() -> None:
    done = subprocess.run(
        [sys.executable, str(blocks.ROOT / "results" / "blocks.py"), "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
