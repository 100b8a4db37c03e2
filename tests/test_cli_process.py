"""The command line as a process: what a fresh interpreter does with the embedded digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from cli_process import assert_one_clear_line, fscil_process, popen
from fscil.engine.checkpoint import load_tensors


def test_limit_on_digits_from_the_command_line(tmp_path: Path) -> None:
    code, out, err = fscil_process(
        "run", "limit", "digits", "epochs=1", "meta_steps=2", "--out", "run", "--json", cwd=tmp_path
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["classes_per_session"] == [4, 2, 2, 2]
    folder = tmp_path / "run"
    for file in ("config.toml", "metrics.jsonl", "checkpoint/pretrain.safetensors", "checkpoint/meta-train.safetensors",
                 "model/config.json", "model/model.safetensors", "model/README.md", "predictions.safetensors",
                 "result.json", "report.html"):  # fmt: skip
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
