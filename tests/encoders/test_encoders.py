from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil import encoders
from fscil.encoders import Encoder
from fscil.encoders.resnet20 import BasicBlock, ResNet20
from fscil.errors import UserError

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def some_images(n: int, size: int = 32) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize(
    ("name", "parameters", "dim", "size"), [("resnet20", 271_824, 64, 32), ("resnet18", 11_176_512, 512, 84)]
)
def test_size_and_output_of_the_benchmarks_networks(name: str, parameters: int, dim: int, size: int) -> None:
    encoder = encoders.build(name, MEAN, STD).eval()
    assert sum(p.numel() for p in encoder.parameters()) == parameters
    assert encoder.dim == dim
    embeddings = encoder(some_images(2, size))
    assert embeddings.shape == (2, dim)
    assert embeddings.dtype == torch.float32
    assert embeddings.isfinite().all()


class Pixels(nn.Module):
    """Gives back what it is shown."""

    dim = 3

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_normalisation_is_that_of_the_formula() -> None:
    images = some_images(4)
    mean = torch.tensor(MEAN, dtype=torch.float64).view(1, 3, 1, 1)
    std = torch.tensor(STD, dtype=torch.float64).view(1, 3, 1, 1)
    expected = (images.double() / 255 - mean) / std
    shown = Encoder(Pixels(), MEAN, STD)(images)
    assert torch.allclose(shown.double(), expected, atol=2e-6)


def test_resnet20_is_three_stages_with_projections_where_shapes_change() -> None:
    blocks = [block for block in ResNet20().stages if isinstance(block, BasicBlock)]
    assert [block.conv2.out_channels for block in blocks] == [16] * 3 + [32] * 3 + [64] * 3
    assert [block.conv1.stride[0] for block in blocks] == [1, 1, 1, 2, 1, 1, 2, 1, 1]
    for i, block in enumerate(blocks):
        if i not in (3, 6):
            assert isinstance(block.shortcut, nn.Identity)
            continue
        projection, norm = block.shortcut.children()
        assert isinstance(projection, nn.Conv2d)
        assert (projection.kernel_size, projection.stride, projection.bias) == ((1, 1), (2, 2), None)
        assert isinstance(norm, nn.BatchNorm2d)


def test_resnet20_computes_the_textbook_forward_pass() -> None:
    """The same weights, written out with functions alone."""
    torch.manual_seed(3)
    network = ResNet20().double().eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # statistics that a mistake would show in
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.3, 0.3)
    w = network.state_dict()

    def norm(x: Tensor, at: str) -> Tensor:
        mean, var = w[f"{at}.running_mean"], w[f"{at}.running_var"]
        scale = w[f"{at}.weight"] / (var + 1e-5).sqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + w[f"{at}.bias"][:, None, None]

    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    y = norm(F.conv2d(x, w["stem.0.weight"], padding=1), "stem.1").clamp(min=0)
    for i, stride in enumerate([1, 1, 1, 2, 1, 1, 2, 1, 1]):
        at = f"stages.{i}"
        z = norm(F.conv2d(y, w[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn1").clamp(min=0)
        z = norm(F.conv2d(z, w[f"{at}.conv2.weight"], padding=1), f"{at}.bn2")
        aside = y if stride == 1 else norm(F.conv2d(y, w[f"{at}.shortcut.0.weight"], stride=2), f"{at}.shortcut.1")
        y = (z + aside).clamp(min=0)
    assert torch.allclose(network(x), y.mean((2, 3)), atol=1e-10)


def test_embed_leaves_no_trace_and_does_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoders.build("resnet20", MEAN, STD).train()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    images = some_images(7, 8)
    at_once = encoder.embed(images)
    monkeypatch.setitem(encoders.EMBED_AT_ONCE, "cpu", 3)
    in_parts = encoder.embed(images)
    assert torch.allclose(at_once, in_parts, atol=1e-5)
    assert not at_once.requires_grad
    assert encoder.training  # as it was
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())
    encoder.eval()
    encoder.embed(images)
    assert not encoder.training


def test_embed_of_no_images_is_empty() -> None:
    assert encoders.build("resnet20", MEAN, STD).embed(some_images(0, 8)).shape == (0, 64)


def test_initialisation_follows_torchs_seed() -> None:
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in encoders.build("resnet20", MEAN, STD).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_unknown_encoder_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'resnet21'.*did you mean 'resnet20'"):
        encoders.build("resnet21", MEAN, STD)


def test_other_packages_add_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = EntryPoint("mine", "fscil.encoders.resnet20:resnet20", "fscil.encoders")
    monkeypatch.setattr(encoders, "entry_points", lambda group: [mine] if group == "fscil.encoders" else [])
    assert encoders.build("mine", MEAN, STD).dim == 64
