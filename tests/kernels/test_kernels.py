"""Our Triton kernels against torch in float64: compiled on a GPU, interpreted elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil import encoders
from fscil.kernels import triton as triton_kernels
from fscil.kernels.fused_norm import _NormReLU, can_fuse
from fscil.kernels.thin_convolution import SUMMED, convolve, weight_gradient

triton = pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and [int(part) for part in triton.__version__.split(".")[:2]] < [3, 7],
    reason="needs a CUDA device, or Triton 3.7, whose interpreter knows today's NumPy",
)
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # Triton's interpreter cannot multiply bfloat16


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is slow; a compiled kernel's constants cannot be changed."""
    if DEVICE == "cpu":
        kernels = triton_kernels.norm
        monkeypatch.setattr(kernels, "ROWS", type(kernels.ROWS)(16))
        monkeypatch.setattr(kernels, "PARTS", type(kernels.PARTS)(4))


def pictures(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)
    return values.to(memory_format=torch.channels_last)


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert float((found.detach().double() - expected).norm()) <= tolerance * float(expected.norm())


# rows: less than a tile, not a multiple of one, several tiles per part
@pytest.mark.parametrize(
    ("n", "channels", "size"),
    [(1, 16, 3), (3, 32, 5), (5, 64, 8), pytest.param(300 if DEVICE == "cuda" else 9, 16, 24, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("with_shortcut", [False, True], ids=["plain", "shortcut"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_fused_normalisation_is_batch_norm_addition_and_relu(
    n: int, channels: int, size: int, with_shortcut: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    norm = nn.BatchNorm2d(channels, momentum=0.3).to(DEVICE)
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.uniform_(norm.bias, -1, 1)
    theirs = nn.BatchNorm2d(channels, momentum=0.3).to(DEVICE, torch.float64)
    theirs.load_state_dict(norm.state_dict())
    x, s, g = (pictures(n, channels, size, size, dtype=dtype, seed=seed) for seed in (1, 2, 3))
    x = (2 * x + 3).requires_grad_()
    s.requires_grad_()
    exact_x, exact_s = (each.detach().double().requires_grad_() for each in (x, s))

    z = theirs(exact_x)
    if with_shortcut:
        z = z + exact_s
    g = g * (z.abs() > 1e-3)  # a z that is almost 0 may fall on either side
    expected = F.relu(z)
    expected.backward(g.double())
    y = _NormReLU.apply(x, s if with_shortcut else None, norm.weight, norm.bias, norm)
    y.backward(g)

    rounding = 1e-5 if dtype == torch.float32 else 5e-3
    assert (y.dtype, x.grad.dtype) == (dtype, dtype)
    close(y, expected.detach(), rounding)
    close(x.grad, exact_x.grad, max(rounding, 1e-4))
    if with_shortcut:
        close(s.grad, exact_s.grad, 1e-6)
    for name in ("weight", "bias"):
        close(getattr(norm, name).grad, getattr(theirs, name).grad, 1e-4)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        close(getattr(norm, name), getattr(theirs, name).double(), 1e-5)


def test_nan_stays_nan() -> None:
    """Otherwise a training that diverges would look healthy."""
    x = pictures(2, 16, 4, 4)
    x[1, 3, 2, 2] = torch.nan
    norm = nn.BatchNorm2d(16).to(DEVICE)
    y = _NormReLU.apply(x, None, norm.weight, norm.bias, norm)
    assert y[:, 3].isnan().all()
    assert y[:, :3].isfinite().all()


def test_a_large_mean_leaves_the_variance_exact() -> None:
    x = pictures(4, 16, 12, 12) + 1000
    norm = nn.BatchNorm2d(16).to(DEVICE)
    y = _NormReLU.apply(x, None, norm.weight, norm.bias, norm)
    close(y, F.relu(F.batch_norm(x.double(), None, None, training=True)), 1e-3)


@pytest.mark.parametrize("channels", SUMMED)
@pytest.mark.parametrize(("n", "height", "width"), [(1, 1, 1), (1, 5, 7), (3, 8, 8), (2, 24, 24)])
def test_thin_convolutions_and_their_gradients_are_torchs(n: int, height: int, width: int, channels: int) -> None:
    x, g = (pictures(n, channels, height, width, dtype=HALF, seed=seed) for seed in (1, 2))
    weight = (pictures(channels, channels, 3, 3) / 12).to(HALF)
    exact_x, exact_weight = (each.double().requires_grad_() for each in (x, weight))
    expected = F.conv2d(exact_x, exact_weight, padding=1)
    expected.backward(g.double())
    close(convolve(x, weight), expected.detach(), 5e-3)
    close(convolve(g, weight, of_input=True), exact_x.grad, 5e-3)
    dW = weight_gradient(x, g)
    close(dW, exact_weight.grad, 1e-5)
    assert dW.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "channels"), [((3, 117, 113), 16), ((1, 131, 129), 32)])
def test_weight_gradients_of_many_pixels(shape: tuple[int, int, int], channels: int) -> None:
    """Enough that a part has several tiles, the last of them not full."""
    n, height, width = shape
    x, g = (pictures(n, channels, height, width, dtype=HALF, seed=seed) for seed in (1, 2))
    weight = torch.zeros(channels, channels, 3, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    F.conv2d(x.double(), weight, padding=1).backward(g.double())
    close(weight_gradient(x, g), weight.grad, 1e-5)


@on_gpu
def test_a_resnet20_learns_the_same_with_and_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(1)
    encoder = encoders.build("resnet20", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)).cuda().train()
    images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8, device="cuda")
    wanted = torch.randn(256, 64, device="cuda")

    def gradient(autocast: bool) -> Tensor:
        encoder.autocast = autocast
        encoder.zero_grad()
        (encoder(images) * wanted).sum().backward()
        return torch.cat([p.grad.flatten() for p in encoder.parameters()]).double()

    ours, ours_reduced = gradient(False), gradient(True)
    monkeypatch.setattr(triton_kernels, "usable", lambda device: False)
    theirs, theirs_reduced = gradient(False), gradient(True)
    close(ours, theirs, 0.01)  # activations near 0 fall on either side
    assert (ours_reduced - theirs).norm() < 1.2 * (theirs_reduced - theirs).norm()  # no less accurate than torch's


@on_gpu
def test_what_cannot_be_fused_is_left_to_torch() -> None:
    x = pictures(2, 16, 4, 4)
    assert can_fuse(nn.BatchNorm2d(16).cuda(), x, None)
    assert not can_fuse(nn.BatchNorm2d(16).cuda().eval(), x, None)
    assert not can_fuse(nn.SyncBatchNorm(16).cuda(), x, None)
    assert not can_fuse(nn.BatchNorm2d(16).cuda(), x.contiguous(), None)
    assert not can_fuse(nn.BatchNorm2d(12).cuda(), x[:, :12], None)
    assert not can_fuse(nn.BatchNorm2d(16).cuda(), x, x.contiguous())
    assert not can_fuse(nn.BatchNorm2d(16).cuda().double(), x.double(), None)
    assert not can_fuse(nn.BatchNorm2d(16).cuda(), x[:1, :, :1, :1], None)  # torch refuses it


def test_a_broken_triton_is_told_and_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(triton_kernels.norm, "total", Broken())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.warns(UserWarning, match="Triton does not work here: Failed to find C compiler"):
        assert not triton_kernels.works.__wrapped__(torch.device("cpu"))
