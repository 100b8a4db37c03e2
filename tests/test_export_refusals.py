"""What cannot be exported is refused in one line, and nothing is written."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from export_helpers import TINY, learner_of, model_of, tiny
from fscil import UserError, calibrators
from fscil import model as models
from fscil.calibrators import Cosine
from fscil.export import export_onnx

__all__ = ["tiny"]  # a fixture


class OnTheHost(Cosine):
    """Of another package; it leaves torch."""

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        return torch.from_numpy(queries.numpy() @ rows.numpy().T)


def test_calibrators_that_cannot_be_exported_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(calibrators.BUILT_IN, "theirs", OnTheHost)
    learner = learner_of(model_of(replace(TINY, calibrator="theirs", calibrator_options={}), 3), ["a", "b", "c"])
    with pytest.raises(UserError, match="calibrator theirs cannot be exported to ONNX") as caught:
        export_onnx(learner, tmp_path / "a.onnx")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("emd", {"cells": 225}, "'emd' solves transport problems"),
        ("bi-lstm", {}, "'bi-lstm' of this model can be exported for a fixed number"),
        ("transformer", {"slots": 9}, "'transformer' of this model can be exported for a fixed number"),
    ],
)
def test_calibrators_of_ours_that_cannot_be_exported_are_refused(
    name: str, options: dict[str, int], message: str, tmp_path: Path
) -> None:
    spec = replace(TINY, calibrator=name, calibrator_options=options)
    with pytest.raises(UserError, match=message):
        export_onnx(
            learner_of(models.build(spec, 3).requires_grad_(False).eval(), ["a", "b", "c"]), tmp_path / "a.onnx"
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model", "ends in .onnx"),
        ("there.onnx", "exists already"),
        ("there.onnx/a.onnx", "not a folder that you may write to"),
        ("a\0.onnx", "cannot be the name of a file"),
    ],
)
def test_bad_paths_are_refused_at_once(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "there.onnx").write_bytes(b"mine")
    with pytest.raises(UserError, match=message) as caught:
        export_onnx("no such folder", tmp_path / name)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "there.onnx").read_bytes() == b"mine"


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_packages_are_named(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=rf'needs {missing} .* pip install "fscil\[onnx\]"'):
        export_onnx("no such folder", tmp_path / "a.onnx")
