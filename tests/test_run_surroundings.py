"""What a run finds: its device."""

from __future__ import annotations

import pytest
import torch

from fscil import runs
from fscil.errors import UserError


def test_devices_by_name() -> None:
    assert runs.choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="it is cpu or cuda"):
        runs.choose_device("tpu")
    if not torch.cuda.is_available():
        assert runs.choose_device(None) == torch.device("cpu")
        with pytest.raises(UserError, match="no CUDA device"):
            runs.choose_device("cuda")
