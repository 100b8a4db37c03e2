from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from threading import Barrier

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from fscil import encoders
from fscil.encoders import Encoder
from fscil.encoders.resnet18 import ResNet18, ResNet18For32
from fscil.encoders.resnet20 import BasicBlock, ResNet20
from fscil.errors import UserError

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def some_images(n: int, size: int = 32) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize(
    ("name", "parameters", "dim", "size"),
    [("resnet20", 271_824, 64, 32), ("resnet18-32", 11_168_832, 512, 32), ("resnet18", 11_176_512, 512, 84)],
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
    """Returns its input."""

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
        if isinstance(module, nn.BatchNorm2d):  # statistics that would reveal a mistake
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


@pytest.mark.parametrize(
    ("name", "names", "fingerprint"),
    [
        ("resnet20", "c1f4e61dd5385bec", -8.69169014),
        ("resnet18-32", "9af84df7da00f44f", -18.03870425),
        ("resnet18", "d3cc0eb93dffc376", -50.29239913),
    ],
)
def test_initial_weights_of_a_seed_never_change(name: str, names: str, fingerprint: float) -> None:
    """A run of this version starts from the same weights as one of the first version did."""
    torch.manual_seed(0)
    state = encoders.build(name, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)).state_dict()
    text = "\n".join(f"{key} {list(tensor.shape)}" for key, tensor in state.items())
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == names
    values = torch.cat([tensor.flatten().double() for tensor in state.values()])
    # a sum that notices every value and its place, but not the last bit, in which CPUs differ
    assert (values @ torch.arange(len(values), dtype=torch.float64).cos()).item() == pytest.approx(
        fingerprint, abs=1e-5
    )


# -- spatial features ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "size", "shape"),
    [
        ("resnet20", 32, (64, 8, 8)),
        ("resnet20", 9, (64, 3, 3)),
        ("resnet18", 84, (512, 3, 3)),
        ("resnet18-32", 32, (512, 4, 4)),
        ("resnet18-32", 9, (512, 2, 2)),
    ],
)
def test_embeddings_are_the_mean_of_spatial_features(name: str, size: int, shape: tuple[int, ...]) -> None:
    encoder = encoders.build(name, MEAN, STD).eval()
    images = some_images(2, size)
    features = encoder.spatial(images)
    assert features.shape == (2, *shape)
    assert features.dtype == torch.float32
    assert torch.equal(F.adaptive_avg_pool2d(features, 1).flatten(1), encoder(images))
    assert torch.allclose(features.mean((2, 3)), encoder(images), atol=1e-5)


def test_resnet18_computes_what_torchvisions_does() -> None:
    torch.manual_seed(1)
    ours = ResNet18().eval()
    theirs = torchvision.models.resnet18(weights=None)
    theirs.fc = nn.Identity()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 40, 40)
    assert torch.equal(ours(x), theirs.eval()(x))


def test_resnet18_for_32_pixels_is_torchvisions_with_another_stem() -> None:
    torch.manual_seed(1)
    ours = ResNet18For32().eval()
    theirs = torchvision.models.resnet18(weights=None)
    theirs.conv1, theirs.maxpool, theirs.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity(), nn.Identity()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(ours(x), theirs.eval()(x))
    deviation = (2 / (64 * 9)) ** 0.5  # He et al.'s, by the number of outputs
    assert ours.conv1.weight.std().item() == pytest.approx(deviation, rel=0.1)


def test_an_encoder_without_spatial_features_says_so() -> None:
    with pytest.raises(UserError, match="Pixels has no spatial features"):
        Encoder(Pixels(), MEAN, STD).spatial(some_images(1))


@pytest.mark.parametrize(("name", "shape"), [("resnet20", (32, 16, 16)), ("resnet18-32", (128, 16, 16))])
@torch.no_grad()
def test_the_two_halves_are_the_whole(name: str, shape: tuple[int, ...]) -> None:
    encoder, images = encoders.build(name, MEAN, STD).eval(), some_images(3)
    middle = encoder.first(images)
    assert encoder.has_halves
    assert middle.shape == (3, *shape)
    assert torch.equal(encoder.second(middle), encoder(images))


def test_an_encoder_without_halves_says_so() -> None:
    encoder = Encoder(Pixels(), MEAN, STD)
    assert not encoder.has_halves
    with pytest.raises(UserError, match="Pixels cannot be cut in two"):
        encoder.first(some_images(1))


# -- threads ---------------------------------------------------------------------------------------------------------
def test_threads_that_embed_at_once_agree_to_the_bit_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoders.EMBED_AT_ONCE, "cpu", 4)
    encoder = encoders.build("resnet20", MEAN, STD, input_size=12).eval()
    batches = [some_images(n, 16) for n in range(9, 17)]
    alone = [encoder.embed(batch) for batch in batches]
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}

    def refuse(mode: bool = True) -> Encoder:
        raise AssertionError("another thread could see the mode change")

    monkeypatch.setattr(encoder, "train", refuse)
    monkeypatch.setattr(encoder, "eval", refuse)
    together = Barrier(len(batches))

    def embed(batch: Tensor) -> list[Tensor]:
        together.wait(60)
        return [encoder.embed(batch) for _ in range(4)]

    with ThreadPoolExecutor(len(batches)) as pool:
        for expected, found in zip(alone, pool.map(embed, batches), strict=True):
            assert all(torch.equal(each, expected) for each in found)
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())


# -- names -----------------------------------------------------------------------------------------------------------
def test_unknown_encoder_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'resnet21'.*did you mean 'resnet20'"):
        encoders.build("resnet21", MEAN, STD)


def shapeless() -> nn.Module:
    return nn.Identity()


def of_other_packages(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    points = [EntryPoint(name, value, "fscil.encoders") for name, value in values.items()]
    monkeypatch.setattr(encoders, "entry_points", lambda group: [point for point in points if point.group == group])


def test_other_packages_add_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    of_other_packages(monkeypatch, mine="fscil.encoders.resnet20:ResNet20", resnet18="fscil.encoders.resnet20:ResNet20")
    assert encoders.names() == [*encoders.BACKBONES, "mine"]
    assert encoders.build("mine", MEAN, STD).dim == 64
    assert encoders.build("resnet18", MEAN, STD).dim == 512  # a built-in name cannot be overridden
    assert encoders.descriptions()["mine"] == encoders.descriptions()["resnet20"]


def test_every_encoder_is_described_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    of_other_packages(
        monkeypatch, broken="no_such_package:encoder", bare=f"{__name__}:shapeless", wrong="fscil:__name__"
    )
    lines = encoders.descriptions()
    assert list(lines) == [*encoders.BACKBONES, "bare", "broken", "wrong", "timm:NAME"]
    assert lines["resnet20"].startswith("64 dimensions, 271,824 parameters; for small images")
    assert lines["resnet18-32"].startswith("512 dimensions, 11,168,832 parameters; for small images")
    assert lines["resnet18"].startswith("512 dimensions, 11,176,512 parameters; for photos")
    assert lines["bare"] == "no description"
    assert "no_such_package:encoder cannot be imported" in lines["broken"]
    assert "neither a class nor a function" in lines["wrong"]
    assert not any("\n" in line for line in lines.values())
    with pytest.raises(UserError, match=r"'broken'.*cannot be imported"):
        encoders.build("broken", MEAN, STD)
    with pytest.raises(UserError, match="'bare' does not give the size of its embeddings as `dim`"):
        encoders.build("bare", MEAN, STD)
