from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import resized_crop

from fscil import augment
from fscil import photos as photos_module
from fscil.augment.crop import random_boxes
from fscil.augment.draws import Draws
from fscil.benchmark import Session, split
from fscil.datasets import photo_store
from fscil.datasets.decode import Resize
from fscil.datasets.photo_store import Store
from fscil.episodes import EmbeddingTasks, ImageTasks, TaskShape
from fscil.errors import UserError
from fscil.images import contents, mean_and_deviation, wholes
from fscil.photos import Photos

SHAPES = [(40, 40), (40, 61), (75, 50), (200, 30), (33, 90), (41, 40), (64, 48)]  # height, width
SIZE = 32

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Lossless files of differing size, smooth enough that a resized one can be compared with another resizing."""
    paths = []
    for i, (height, width) in enumerate(SHAPES):
        y, x = np.mgrid[:height, :width]
        planes = [(128 + 120 * np.sin((x * (1 + c) + y * (i + 1)) / 15)).astype(np.uint8) for c in range(3)]
        paths.append(tmp_path / "tree" / f"{i}.png")
        paths[-1].parent.mkdir(exist_ok=True)
        Image.fromarray(np.stack(planes, -1)).save(paths[-1])
    return paths


@pytest.fixture
def store(tmp_path: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(photo_store, "SHARD", 3)
    made = Store(tmp_path / "store", pictures, [path.name for path in pictures], Resize(SIZE))
    made.prepare()
    return made


def stored(path: Path) -> Tensor:
    """The reference: Pillow's own resizing, the short side to SIZE, of the middle if the long side is too long."""
    image = Image.open(path)
    width, height = image.size
    longest = 2 * min(width, height)
    left, top = max(0, width - longest) / 2, max(0, height - longest) / 2
    box = (left, top, width - left, height - top)
    scale = SIZE / min(width, height)
    size = round(scale * (box[2] - box[0])), round(scale * (box[3] - box[1]))
    return torch.from_numpy(np.array(image.resize(size, Image.Resampling.BILINEAR, box=box))).permute(2, 0, 1)


def test_photos_stand_for_their_middle_squares(store: Store, pictures: list[Path]) -> None:
    photos = Photos(store.open())
    assert photos.shape == (len(SHAPES), 3, SIZE, SIZE)
    for path, square in zip(pictures, photos[:], strict=True):
        whole = stored(path)
        top, left = (whole.shape[1] - SIZE) // 2, (whole.shape[2] - SIZE) // 2
        assert torch.equal(square, whole[:, top : top + SIZE, left : left + SIZE])
    order = torch.tensor([[5, 0], [3, 3]])
    assert torch.equal(photos[order], photos[:][order])
    assert torch.equal(photos.subset(torch.tensor([6, 2]))[1], photos[2])
    assert torch.equal(torch.cat(list(photos.split(2))), photos[:])


def test_crops_reach_all_of_a_photo(store: Store, pictures: list[Path]) -> None:
    """Against torchvision, photo by photo."""
    found = Photos(store.open()).wholes(torch.arange(len(SHAPES)))
    top, left, height, width = random_boxes(found.heights, found.widths, Draws(torch.arange(len(SHAPES))))
    crops = found.resized_crops(top, left, height, width, 24)
    boxes = torch.stack([top, left, height, width], 1).tolist()
    for path, crop, box in zip(pictures, crops, boxes, strict=True):
        wanted = resized_crop(stored(path).float(), *box, [24, 24], antialias=False)
        assert (crop.float() - wanted).abs().max() <= 0.51  # rounded to bytes
    whole = found.resized_crops(0 * top, 0 * left, found.heights, found.widths, SIZE)
    for path, crop in zip(pictures, whole, strict=True):
        wanted = resized_crop(stored(path).float(), 0, 0, *stored(path).shape[1:], [SIZE, SIZE], antialias=False)
        assert (crop.float() - wanted).abs().max() <= 0.51


@pytest.mark.parametrize("crop", ["pad", "resized"])
@pytest.mark.parametrize("augmentation", ["none", "basic", "autoaug"])
def test_a_photo_is_augmented_the_same_in_any_batch(store: Store, augmentation: str, crop: str) -> None:
    photos, keys = Photos(store.open()), torch.arange(100, 100 + len(SHAPES))
    augmented = augment.build(augmentation, size=28, crop=crop, policy="imagenet")
    together = augmented(wholes(photos, torch.arange(len(SHAPES))), keys)
    assert together.shape == (len(SHAPES), 3, 28, 28)
    for row in range(len(SHAPES)):
        alone = augmented(wholes(photos, torch.tensor([row])), keys[row : row + 1])
        assert torch.equal(together[row], alone[0])
    if crop == "pad":  # a random window of the middle square
        assert torch.equal(together, augmented(photos[:], keys))


def test_square_photos_are_cropped_like_a_tensor(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    squares = Store(tmp_path / "squares", paths, [path.name for path in paths], Resize(SIZE))
    squares.prepare()
    photos, keys = Photos(squares.open()), torch.arange(len(paths))
    augmented = augment.build("basic", size=28, crop="resized")
    difference = augmented(photos.wholes(keys), keys).int() - augmented(photos[:], keys).int()
    assert difference.abs().max() <= 1  # grid_sample rounds a little differently


def test_a_photo_may_be_squashed_where_a_square_is_needed(tmp_path: Path, pictures: list[Path]) -> None:
    """Random crops still see its shape."""
    squashed = Store(tmp_path / "squashed", pictures, [path.name for path in pictures], Resize(SIZE, squash=True))
    squashed.prepare()
    photos = Photos(squashed.open())
    for path, square in zip(pictures, photos[:], strict=True):
        whole = stored(path).float()
        wanted = resized_crop(whole, 0, 0, *whole.shape[1:], [SIZE, SIZE], antialias=False)
        assert (square.float() - wanted).abs().max() <= 0.51
    assert photos.wholes(torch.tensor([1])).widths.item() == stored(pictures[1]).shape[2]


@pytest.mark.parametrize("squash", [False, True])
def test_no_photos_are_no_problem(store: Store, squash: bool) -> None:
    nothing = torch.arange(0)
    photos = Photos(replace(store.open(), squash=squash))
    assert photos[nothing].shape == photos.subset(nothing)[:].shape == (0, 3, SIZE, SIZE)
    assert [part.shape for part in photos.subset(nothing).split(4)] == [(0, 3, SIZE, SIZE)]
    for crop in ("pad", "resized"):
        assert augment.build("basic", size=28, crop=crop)(photos.wholes(nothing), nothing).shape == (0, 3, 28, 28)


def test_all_of_a_fake_task_is_cropped_from_whole_photos(tmp_path: Path) -> None:
    """Photos are black in the middle and white elsewhere: crops of the middle square alone would be black."""
    paths = [tmp_path / f"{i}.png" for i in range(40)]
    for path in paths:
        pixels = np.full((SIZE, 2 * SIZE, 3), 255, np.uint8)
        pixels[:, SIZE // 2 : -SIZE // 2] = 0
        Image.fromarray(pixels).save(path)
    wide = Store(tmp_path / "store", paths, [path.name for path in paths], Resize(SIZE))
    wide.prepare()
    session = Session(tuple(range(4)), Photos(wide.open()), torch.arange(40) % 4)
    augmentation = augment.build("basic", size=28, crop="resized")
    for fake_classes in ("base", "mixed"):
        shape = TaskShape(1, 1, 2, 2, fake_classes)
        tasks = EmbeddingTasks(session, shape, augmentation, lambda images: images.float().mean((2, 3)), seed=1)
        assert tasks.embeddings.mean() > 60
        if fake_classes == "mixed":
            assert tasks.pool.mean() == pytest.approx(tasks.embeddings.mean().item(), abs=30)
    assert ImageTasks(session, TaskShape(1, 1, 2, 2), augmentation).sample(2, 1)["images"].float().mean() > 60


def test_other_photos_or_shapes_are_other_data(tmp_path: Path) -> None:
    """The digest tells a red photo from a green one, and a wide one from a tall one."""
    found = set()
    for i, (colour, size) in enumerate([("red", (16, 8)), ("red", (8, 16)), ("green", (16, 8))]):
        Image.new("RGB", size, colour).save(tmp_path / f"{i}.png")
        one = Store(tmp_path / f"store{i}", [tmp_path / f"{i}.png"], ["x.png"], Resize(8))
        one.prepare()
        found.add(bytes(contents(Photos(one.open()))))
    assert len(found) == 3


def test_an_interrupted_waiter_does_not_let_a_third_in(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is interrupted while waiting for a lock must not remove it."""
    path = store.shards[0]
    path.unlink()
    lock = path.with_suffix(".lock")

    def interrupted(self: FileLock, *arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with FileLock(lock):
        monkeypatch.setattr(FileLock, "acquire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.prepare()
        monkeypatch.undo()
        assert lock.exists()
    store.prepare()
    assert store.damaged() == []
    assert [entry.name for entry in store.folder.iterdir() if entry.suffix != ".safetensors"] == []


def test_leftovers_of_other_files_are_removed(store: Store) -> None:
    for name in ("0123456789abcdef01234567.safetensors", ".0123.safetensors.ab12.part", "0123456789abcdef.lock"):
        (store.folder / name).touch()
    store.prepare()
    assert sorted(store.folder.iterdir()) == sorted(store.shards)


def test_some_photos_are_moved_part_by_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos_module, "COPIED_AT_ONCE", 2)
    shards, rows = store.open(), torch.tensor([6, 1, 1, 3, 0])
    moved = Photos(shards.on(torch.device("cpu"), rows))
    assert torch.equal(moved[:], Photos(shards)[rows])
    assert moved.digests == Photos(shards, rows).digests
    assert len(Photos(shards.on(torch.device("cpu"), rows[:0]))) == 0


def test_squashed_photos_are_other_data(store: Store) -> None:
    shards = store.open()
    assert contents(Photos(shards)) != contents(Photos(replace(shards, squash=True)))


@needs_cuda
def test_photos_on_a_gpu_are_those_on_the_host(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied there once, or part by part, with or without prefetching the right ones."""
    host, keys = Photos(store.open()), torch.arange(len(SHAPES))
    resident = host.to("cuda")
    monkeypatch.setattr(photos_module, "FREE_SHARE", 0.0)
    streamed = host.to("cuda")
    cropped, augmented = (
        augment.build(name, size=28, crop="resized", policy="imagenet") for name in ("basic", "autoaug")
    )
    for each in (resident, streamed, resident.to("cuda"), resident.subset(keys), streamed.subset(keys)):
        assert torch.equal(each[:].cpu(), host[:])
        each.prefetch(keys[:3])
        assert torch.equal(each[keys[:3]].cpu(), host[keys[:3]])
        each.prefetch(keys[2:])
        assert torch.equal(each[keys[:2]].cpu(), host[keys[:2]])
        found = cropped(each.wholes(keys.flip(0)), keys).cpu().int()
        assert (found - cropped(host.wholes(keys.flip(0)), keys).int()).abs().max() <= 1
        found = augmented(each.wholes(keys.flip(0)), keys).cpu().int()
        apart = (found - augmented(host.wholes(keys.flip(0)), keys).int()).abs()
        assert (apart <= 1).float().mean() > 0.99  # where an operation has steps, rounding may cross one
    assert torch.equal(resident.subset(keys[3:]).to("cpu")[:], host[keys[3:]])


def test_boxes_lie_inside_photos_of_any_shape() -> None:
    heights, widths = torch.tensor([1, 500, 30, 256, 7]).repeat(200), torch.tensor([500, 1, 30, 341, 3]).repeat(200)
    top, left, height, width = random_boxes(heights, widths, Draws(torch.arange(1000)))
    assert (height >= 1).all()
    assert (width >= 1).all()
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= heights).all()
    assert (left + width <= widths).all()


def test_a_benchmark_of_photos_is_one_of_their_squares(store: Store) -> None:
    """Identity, mean and deviation come from the pixels, wherever the files are."""
    photos = Photos(store.open())
    squares, labels, names = photos[:], torch.tensor([0, 0, 0, 1, 1, 2, 2]), list(range(len(SHAPES)))
    arguments = {"base_classes": 2, "ways": [1], "shots": [1]}
    one, other = (split("x", "abc", each, labels, names, each, labels, **arguments) for each in (photos, squares))
    assert (one.mean, one.std) == (other.mean, other.std) == mean_and_deviation(squares[:5])
    assert torch.equal(one.sessions[1].images[:], other.sessions[1].images)
    assert torch.equal(one.test(0)[0][:], other.test(0)[0])
    assert contents(photos) != contents(photos.subset(torch.arange(6)))
    assert contents(photos) == contents(Photos(store.open()).to("cpu"))


def test_a_long_strip_keeps_its_middle(tmp_path: Path) -> None:
    Image.new("RGB", (3000, 1), "red").save(tmp_path / "strip.png")
    strip = Store(tmp_path / "store", [tmp_path / "strip.png"], ["strip.png"], Resize(SIZE))
    strip.prepare()
    opened = strip.open()
    assert (opened.heights.item(), opened.widths.item()) == (SIZE, 2 * SIZE)


def test_damage_is_found_by_name(store: Store) -> None:
    assert store.damaged() == []
    path = store.shards[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert store.damaged() == ["5.png"]
    path.write_bytes(bytes(data[:-50]))
    with pytest.raises(UserError, match=r"is damaged; delete it"):
        store.open()
