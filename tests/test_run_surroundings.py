"""What a run finds: its data, to the pixel, and its device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fscil import runs
from fscil.benchmark import Benchmark
from fscil.errors import UserError


def test_the_base_session_is_known_to_the_pixel(tiny_benchmark: Callable[..., Benchmark]) -> None:
    first, changed = tiny_benchmark(), tiny_benchmark()
    assert runs.session_checksum(first) == runs.session_checksum(changed)
    changed.sessions[0].images[0, 0, 0, 0] ^= 1
    assert runs.session_checksum(first) != runs.session_checksum(changed)
    relabelled = tiny_benchmark()
    relabelled.sessions[0].labels[0] = 1
    assert runs.session_checksum(first) != runs.session_checksum(relabelled)


def test_devices_by_name() -> None:
    assert runs.choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="it is cpu or cuda"):
        runs.choose_device("tpu")
    if not torch.cuda.is_available():
        assert runs.choose_device(None) == torch.device("cpu")
        with pytest.raises(UserError, match="no CUDA device"):
            runs.choose_device("cuda")
