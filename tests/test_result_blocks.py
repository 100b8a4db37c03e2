"""The numbers of README.md and docs/ are those of results/."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fscil import paper
from fscil.errors import UserError
from fscil.results import Result, write_result
from results import accuracy, blocks, elsewhere, speed, summaries

ALL = {
    "cifar100": [*accuracy.NAMES],
    "ablation": [*paper.ablation()],
    "glyphs": [*elsewhere.METHODS],
    "omniglot": [*elsewhere.METHODS],
    "cub200": [*elsewhere.METHODS],
    "cifar100-resnet18": [*elsewhere.RESNET18],
    "digits": elsewhere.ON_DIGITS,
    "inner": [f"{name}-{preset}" for name in elsewhere.INNER for preset in ("limit-plus", "decoupled-cosine-plus")],
}
FOLDERS = {"inner": "glyphs-validation", "ablation": "cifar100", "cifar100-resnet18": "cifar100"}
Write = Callable[..., None]


@pytest.fixture
def write(make_result: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """write("glyphs/limit", area=30.0, ...): three seeds of invented results; all files exist beforehand."""
    monkeypatch.setattr(summaries, "FOLDER", tmp_path / "results")

    def results_of(name: str, margin: float = 0.0, **fields: object) -> None:
        path = summaries.FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        preset = re.sub(r"^.*(limit|decoupled)", r"\1", path.name).removesuffix("-paper")
        benchmark = FOLDERS.get(path.parent.name, path.parent.name)
        for seed in (1, 2, 3):
            ways = (100, *[10] * 10) if benchmark == "cub200" else (60, *[5] * 8)
            result = make_result(ways, seed, margin, preset=preset, benchmark=benchmark)
            found = {key: value(seed) if callable(value) else value for key, value in fields.items()}
            write_result(replace(result, **found), path.with_name(f"{path.name}-seed{seed}.json"))
        summaries.read.cache_clear()

    for folder, names in ALL.items():
        for name in names:
            results_of(f"{folder}/{name}", margin=0.4 if name == "limit-plus" else 0.0)
    return results_of


def test_documents_say_what_the_results_say() -> None:
    assert [path.name for path in blocks.outdated()] == []


def test_every_block_stands_in_a_document() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in blocks.documents())
    assert {name for name, _ in blocks.BLOCK.findall(text)} == set(blocks.BLOCKS)


def test_a_changed_number_is_found_and_written_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n<!-- results:speed-cpu -->\n{speed.cpu()}<!-- /results -->\nafter 12\n")
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["blocks.py", "--check"])
    assert blocks.outdated() == {}
    right = document.read_text()
    document.write_text(re.sub(r"\d+ times faster", "7 times faster", right))
    with pytest.raises(SystemExit, match="1"):
        blocks.main()
    assert "7 times faster" in document.read_text()  # it was only checked
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


def test_it_runs_as_a_script_and_names_a_missing_file_in_one_line(tmp_path: Path) -> None:
    shutil.copytree(blocks.ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("cifar100"))
    (tmp_path / "README.md").write_text("<!-- results:short -->\n<!-- /results -->\n")
    for script in ("blocks.py", "pictures.py"):
        done = subprocess.run([sys.executable, tmp_path / "results" / script], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(r"error: results/cifar100/limit-plus-seed\*\.json: no such file; .*\n", done.stderr)


# what the blocks say, with invented results


def test_blocks_have_words_and_numbers_for_all(write: Write) -> None:
    for name, block in blocks.BLOCKS.items():
        text = "" if name.startswith("speed") else block()
        assert not re.search(r"nan|None|\{|–", text), name


def line_of(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
    return line.strip("| ").split(" | ")


def test_tables_hold_means_over_the_seeds_with_and_without_margin(write: Write) -> None:
    write("cifar100/limit", area=lambda seed: 28.0 + seed)
    write("cifar100/limit-plus", margin=0.4)
    plus = accuracy.load_cifar100()["limit-plus"]
    own = statistics.fmean(result.accuracy[-1] for result in plus)
    zero = statistics.fmean((result.margin_zero or {})["accuracy"][-1] for result in plus)
    assert abs(own - zero) > 0.1
    assert line_of(accuracy.short(), "**`limit`**")[-1] == "30.00 ± 1.00"
    assert line_of(accuracy.short(), "**`limit-plus`**")[1].startswith(f"{zero:.2f} ±")
    table = accuracy.cifar100()
    assert line_of(table, "**limit-plus**, margin 0.4")[9] == f"{own:.2f}"
    assert line_of(table, "with margin 0")[9] == f"{zero:.2f}"
    assert line_of(table, "_paper: LIMIT_")[9:12] == ["51.23", "22.58", "61.84"]


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (1.5, "gains 1.50 ± 0.05 of area over class means"),
        (-1.5, "loses 1.50 ± 0.05 of area to class means"),
        (0.05, "is level in area (+0.05 ± 0.05) with class means"),
    ],
)
def test_words_follow_the_sign(gap: float, said: str, write: Write) -> None:
    """Of the difference, and of a difference within its error."""
    wobble = {1: -(0.0075**0.5), 2: 0.0, 3: 0.0075**0.5}  # a standard error of 0.05 over three seeds
    for name, means in {"cifar100/limit-plus": "decoupled-cosine-plus", "glyphs/limit": "decoupled-cosine"}.items():
        write(name, area=lambda seed: 30 + seed + gap + wobble[seed])
        write(f"{name.partition('/')[0]}/{means}", area=lambda seed: 30.0 + seed)
    for text in (accuracy.found(), elsewhere.on_two_cores("glyphs")):
        assert said in " ".join(text.split())


def test_glyphs_says_whether_limit_plus_calibrates(write: Write) -> None:
    said = " ".join(elsewhere.on_two_cores("glyphs").split())
    assert "`limit-plus` does not calibrate here" in said  # its preset says so
    write("glyphs/limit-plus", margin=0.3, changed=["calibrator=transformer"], last=51.0, area=40.0)
    write("glyphs/decoupled-cosine-plus", margin=0.2, last=50.0, area=35.0)
    said = " ".join(elsewhere.on_two_cores("glyphs").split())
    assert "`limit-plus` gains 5.00 ± 0.00 of area over class means on the same embedding; both with margin 0" in said
    assert "with the margins 0.3 and 0.2 that the rule gives them, +1.00 ± 0.00 in the last session" in said


def test_what_a_check_found_is_said(write: Write) -> None:
    note = "calibration is off, checked: area against class means on 400 + 200 base classes: transformer {} ± 0.05"
    for name in ("limit", "limit-plus"):
        write(f"omniglot/{name}", note=lambda seed: note.format(f"-0.{seed}0"))
    said = " ".join(elsewhere.on_two_cores("omniglot").split())
    assert said.count("(0 of 3 runs calibrate; on base classes that changes area by: transformer -0.20)") == 2
    assert "`limit-plus` does not calibrate here" in said
    assert "checked" not in elsewhere.on_two_cores("glyphs")


def test_embeddings_are_said_to_gain_more_only_if_they_do(write: Write) -> None:
    areas = {"limit-plus": 36.0, "decoupled-cosine-plus": 35.0}
    for plain, said in (
        (30.0, "gain class means 5.00 of area on the same encoders: more"),
        (34.5, "0.50"),
        (36, "cost"),
    ):
        for name, area in {**areas, "decoupled-cosine": plain}.items():
            write(f"cifar100/{name}", area=float(area))
        text = " ".join(accuracy.found().split())
        assert said in text
        assert ("more than calibration" in text) == (plain == 30.0)


def test_a_default_that_hurts_is_named(write: Write) -> None:
    for name in elsewhere.INNER:
        for preset in ("limit-plus", "decoupled-cosine-plus"):
            write(f"inner/{name}-{preset}", area=40.0, note="calibration is off, checked: ...")
    assert "by more than the standard error on none of them." in " ".join(elsewhere.inner().split())
    assert "in 21 of 21 runs" in " ".join(elsewhere.in_short().split())
    write("inner/omniglot-limit-plus", area=39.0)
    label = elsewhere.INNER["omniglot"]
    assert f"by more than the standard error on {label}." in " ".join(elsewhere.inner().split())
    assert line_of(elsewhere.inner(), label)[4] == "-1.00 ± 0.00"


@pytest.mark.parametrize(
    ("note", "calibrator"),
    [
        ("calibration by paired, checked: area against class means on 8 + 4 base classes: paired +1.0 ± 0.2", "paired"),
        ("for speed, less; calibration is off, checked: area against class means ...", "none"),
        ("calibration is off, since it cannot be checked: three are needed", "none"),
        ("for speed, pre-training takes 4 epochs", "none"),  # as the preset has it
    ],
)
def test_calibrators_are_those_that_runs_used(note: str, calibrator: str, make_result: Callable[..., Result]) -> None:
    result = make_result(preset="limit-plus", benchmark="glyphs-validation", note=note)
    assert elsewhere.calibrator_of(result) == calibrator


def test_methods_on_the_same_encoders_have_the_same_seeds(write: Write) -> None:
    (summaries.FOLDER / "cifar100" / "limit-seed3.json").unlink()
    summaries.read.cache_clear()
    with pytest.raises(UserError, match=r"limit has seeds \[1, 2\], but limit-paper has \[1, 2, 3\]"):
        accuracy.short()


def test_results_without_areas_are_refused(write: Write) -> None:
    write("cifar100/limit", area=None)
    with pytest.raises(UserError, match=r"cifar100/limit-seed.*older fscil"):
        accuracy.short()


def test_a_run_is_not_timed_with_a_cached_encoder(
    make_result: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(speed, "FOLDER", tmp_path)
    (tmp_path / speed.ALONE).parent.mkdir()
    spent = {"read": 2.0, "pretrain": 70.0, "sessions": 1.0, "total": 80.0}
    for cached in (False, True):
        seconds = {key: {"seconds": value, "cached": cached and key == "pretrain"} for key, value in spent.items()}
        write_result(make_result(seconds=seconds), tmp_path / speed.ALONE)
        if not cached:
            assert "80 seconds on one H200, 70 of them" in speed.short()
            assert [line.split()[-2] for line in speed.whole_run().splitlines()[2:]] == [
                "2.0",
                "70.0",
                "1.0",
                "7.0",
                "80.0",
            ]
    with pytest.raises(UserError, match="pretrain came from the cache"):
        speed.short()
