"""A digest of source code: another version of it may give other numbers."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path

import fscil

# everything that affects the weights that pre-training produces
PRETRAINING = (
    "encoders", "kernels", "augment", "distributed", "engine", "calibrators", "datasets/decode.py", "images.py",
    "photos.py", "reading.py", "model.py", "methods/pretrain.py", "methods/training.py", "methods/turned.py",
)  # fmt: skip
# everything that affects a run's numbers
RUN = (*PRETRAINING, "answers.py", "benchmark.py", "datasets", "episodes", "methods", "protocol.py")


@cache
def digest_of_parts(parts: tuple[str, ...]) -> str:
    """Of files and folders of this package."""
    package = Path(fscil.__file__).parent
    files = {
        f for part in parts for f in ([package / part] if part.endswith(".py") else (package / part).rglob("*.py"))
    }
    return hashlib.sha256(b"".join(f.read_bytes() for f in sorted(files))).hexdigest()[:16]


def digest_of_sources(*objects: Callable[..., object]) -> str | None:
    """Of the files that define these objects, which may belong to another package. None if there is no file."""
    found = hashlib.sha256()
    for each in objects:
        try:
            found.update(Path(inspect.getsourcefile(each) or "").read_bytes())
        except (TypeError, OSError):  # built in, or typed into a notebook
            return None
    return found.hexdigest()[:16]
