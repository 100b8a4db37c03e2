from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

COLOURS = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (30, 200, 200), (200, 30, 200), (90, 90, 90)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Seven classes of six pictures, each class in its own colour, each picture a little redder than the last."""
    for label, (red, green, blue) in enumerate(COLOURS):
        (tmp_path / "tree" / f"class{label}").mkdir(parents=True)
        for i in range(6):
            path = tmp_path / "tree" / f"class{label}" / f"{i}.jpg"
            Image.new("RGB", (20, 16), (red + i, green, blue)).save(path, format="PNG")
    return tmp_path / "tree"
