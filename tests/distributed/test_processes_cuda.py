"""On GPUs: NCCL collectives inside captured steps."""

from __future__ import annotations

from pathlib import Path

import jobs
import pytest
import torch

from fscil.engine.checkpoint import load_tensors

GPUS = torch.cuda.device_count()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process computes outside any process group."""
    folder = tmp_path_factory.mktemp("alone")
    tf32 = torch.backends.cudnn.allow_tf32
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSCIL_CACHE", "off")
        jobs.learn_on_gpus(folder)
    torch.backends.cudnn.allow_tf32 = tf32
    return folder


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(1, marks=pytest.mark.skipif(GPUS < 1, reason="needs a CUDA device")),
        pytest.param(2, marks=pytest.mark.skipif(GPUS < 2, reason="needs two CUDA devices")),
    ],
)
def test_a_group_trains_what_one_process_trains_and_captures_it(alone: Path, tmp_path: Path, world: int) -> None:
    jobs.together(jobs.learn_on_gpus, tmp_path, meeting=tmp_path / "meeting", world=world, device="cuda")
    for scenario in jobs.IN_FLOAT32:
        expected, _ = load_tensors(alone / scenario / "state-0.safetensors")
        for rank in range(world):
            found, about = load_tensors(tmp_path / scenario / f"state-{rank}.safetensors")
            assert about["captured"]
            assert all(about["captured"])
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-4, msg=f"{scenario}, {name}")


@pytest.mark.skipif(GPUS < 1, reason="needs a CUDA device")
def test_a_gpu_that_hangs_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    jobs.together(jobs.wait_for_a_hanging_gpu, tmp_path, meeting=tmp_path / "meeting", world=1, device="cuda")
    assert "process 0 lost contact" in (tmp_path / "said").read_text()
