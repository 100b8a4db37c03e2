"""Before anything imports torch, and Triton with it: where there is no GPU, tests interpret our kernels."""

import os
from pathlib import Path

if not [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]:
    os.environ.setdefault("TRITON_INTERPRET", "1")
