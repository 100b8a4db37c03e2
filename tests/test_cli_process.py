"""The command line as a process: what a fresh interpreter imports, and runs on the embedded digits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from cli_process import SOURCE, assert_one_clear_line, fscil_process, popen
from fscil.engine.checkpoint import load_tensors
from fscil.results import Result, write_result

CALLS = """
import json, sys
from fscil.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["fscil", *arguments]
    try:
        main()
    except SystemExit as leaving:
        print("left with", leaving.code or 0)
heavy = {"torch", "torchvision", "torch._dynamo", "triton", "sympy", "sklearn", "scipy", "matplotlib"}
print("imported:", *sorted(heavy & set(sys.modules)))
"""


def fresh_interpreter(*calls: list[str]) -> list[str]:
    """What a process prints that calls the command line repeatedly, and which heavy packages it imported."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps(calls)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_help_and_refusals_import_nothing_heavy() -> None:
    calls = [["--help"], ["run", "--help"], ["predict", "--help"], ["teach", "--help"], ["data", "--help"]]
    printed = fresh_interpreter(*calls, ["run"], ["predict", "model", "missing.png"], ["teach", "model", "missing.png"])
    assert [line for line in printed if line.startswith("left with")] == ["left with 0"] * 5 + ["left with 2"] * 3
    assert printed[-1] == "imported:"


def test_what_was_taught_is_read_and_corrected_without_torch(model: Path, photos: Path, tmp_path: Path) -> None:
    folder, photo = str(tmp_path / model), str(tmp_path / photos / "class1" / "1-0.png")
    calls = [
        ["history", folder], ["classes", folder], ["classes", folder, "class0"], ["forget", folder, "class0"],
        ["undo", folder], ["rename", folder, "class0", "rose"], ["move", folder, photo, "rose"], ["hide-base", folder],
        ["forget", folder, "--photo", photo],
    ]  # fmt: skip
    printed = fresh_interpreter(*calls)
    assert [line for line in printed if line.startswith("left with")] == ["left with 0"] * len(calls)
    assert printed[-1] == "imported:"


def test_teaching_and_predicting_import_torch_alone(model: Path, photos: Path, tmp_path: Path) -> None:
    folder, photo = str(tmp_path / model), str(tmp_path / photos / "class5")
    calls = [["teach", folder, photo], ["predict", folder, photo], ["sort", folder, photo, "--to", str(tmp_path / "x")],
             ["classes", folder, "--measure"], ["evaluate", folder, str(tmp_path / photos)]]  # fmt: skip
    printed = fresh_interpreter(*calls)
    assert [line for line in printed if line.startswith("left with")] == ["left with 0"] * len(calls)
    assert printed[-1] == "imported: torch"


def test_a_report_needs_no_torch(make_result: Callable[..., Result], tmp_path: Path) -> None:
    write_result(make_result(), tmp_path / "result.json")
    *printed, imported = fresh_interpreter(["report", str(tmp_path), "--out", str(tmp_path / "report.html")])
    assert printed[-1] == "left with 0"
    assert "<html" in (tmp_path / "report.html").read_text()
    assert imported in ("imported:", "imported: matplotlib")


@pytest.mark.parametrize("verb", ["methods", "data list --json"])
def test_a_reader_that_goes_away_is_no_error(verb: str, tmp_path: Path) -> None:
    process = popen(*verb.split(), cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() in (0, 1)


def test_output_that_cannot_show_a_name_is_no_error(
    make_result: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_result(make_result(), tmp_path / "result.json")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, out, err = fscil_process("report", ".", "--out", "Blüte.html", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert out.endswith("report  Bl\\xfcte.html\n")


@pytest.mark.slow
def test_limit_on_digits_from_the_command_line(tmp_path: Path) -> None:
    code, out, err = fscil_process(
        "run", "limit", "digits", "epochs=1", "meta_steps=2", "--out", "run", "--json", cwd=tmp_path
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["classes_per_session"] == [4, 2, 2, 2]
    folder = tmp_path / "run"
    for file in ("config.toml", "metrics.jsonl", "model/config.json", "model/model.safetensors", "model/README.md",
                 "predictions.safetensors", "result.json", "report.html"):  # fmt: skip
        assert (folder / file).stat().st_size > 0
    kept, _ = load_tensors(folder / "predictions.safetensors")
    labels, predictions = kept["labels"].numpy(), kept["predictions"].numpy()
    assert len(labels) == 602
    for i, seen in enumerate(np.cumsum(result["classes_per_session"])):
        here = labels < seen
        assert result["accuracy"][i] == pytest.approx(100 * accuracy_score(labels[here], predictions[i, here]))


def test_errors_are_one_line_without_a_traceback(tmp_path: Path) -> None:
    code, out, err = fscil_process("run", "limit", "digits", "epoch=1", "--out", "run", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert_one_clear_line(err)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_of_two_processes_that_need_one_encoder_one_trains_it(tmp_path: Path) -> None:
    started = [
        popen(
            "run",
            "decoupled-cosine",
            "digits",
            "epochs=1",
            "--out",
            name,
            "--json",
            cwd=tmp_path,
            cache=tmp_path / "cache",
        )
        for name in ("a", "b")
    ]
    results = []
    for process in started:
        out, err = process.communicate()
        assert process.returncode == 0, err
        results.append(json.loads(out))
    assert sorted(result["seconds"]["pretrain"]["cached"] for result in results) == [False, True]
    assert results[0]["accuracy"] == results[1]["accuracy"]
    assert results[0]["seconds"]["pretrain"]["seconds"] == results[1]["seconds"]["pretrain"]["seconds"]
    assert len(list((tmp_path / "cache" / "encoders").glob("*.safetensors"))) == 1
