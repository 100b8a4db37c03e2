"""What every method has learned gives the same answers in a new process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fscil
from fscil import api, methods

pytestmark = pytest.mark.slow
SHORT = {"epochs": 1, "meta_steps": 3, "halve_every": 0, "session_epochs": 1, "check": False}
LOAD = """
import sys
import numpy as np
import fscil

images, *folders, out = sys.argv[1:]
np.savez(out, *(fscil.load(folder).predict_proba(np.load(images)) for folder in folders))
"""


def test_every_method_answers_in_a_new_process_as_in_the_one_that_taught_it(tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    folders, expected = [], []
    for name in methods.names():
        known = methods.get(name).Settings.__dataclass_fields__
        settings = {key: value for key, value in SHORT.items() if key in known}
        result = api.run(name, "digits", out=tmp_path / name, device="cpu", **settings)
        folders.append(str(result.folder))
        expected.append(fscil.load(result.folder).predict_proba(images))
    out = tmp_path / "found.npz"
    subprocess.run([sys.executable, "-c", LOAD, str(tmp_path / "images.npy"), *folders, str(out)], check=True)
    found = np.load(out)
    for i, (name, probabilities) in enumerate(zip(methods.names(), expected, strict=True)):
        assert probabilities.shape == (20, 10), name
        np.testing.assert_array_equal(found[f"arr_{i}"], probabilities, err_msg=name)
