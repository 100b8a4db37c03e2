"""Streamed images behave like the tensor they stand for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fscil.errors import UserError
from fscil.images import Source, StreamedImages, contents, mean_and_deviation, prefetch, subset
from fscil.reading import Reading

N, SIZE = 40, 4
RESIDENT = torch.randint(0, 256, (N, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


class Reads:
    """Streams the resident images and counts how often each is read."""

    def __init__(self, broken: int | None = None) -> None:
        self.counted: Counter[int] = Counter()
        self.broken = broken
        facts = [f"image {row}" for row in range(N)]
        self.images = StreamedImages(Source(self.read, SIZE, "recipe", facts))

    def read(self, row: int) -> NDArray[np.uint8]:
        self.counted[row] += 1
        if row == self.broken:
            raise UserError(f"image {row} cannot be read")
        return RESIDENT[row].permute(1, 2, 0).numpy()


indices = st.one_of(
    st.lists(st.integers(0, N - 1), max_size=30).map(lambda rows: torch.tensor(rows, dtype=torch.long)),
    st.lists(st.booleans(), min_size=N, max_size=N).map(torch.tensor),
    st.slices(N).filter(lambda part: part.step is None or part.step > 0),
    st.integers(-N, N - 1),
    st.lists(st.lists(st.integers(0, N - 1), min_size=3, max_size=3), min_size=1, max_size=5).map(torch.tensor),
)


@given(index=indices)
def test_indexing_gives_the_tensors_pixels(index: Tensor | slice | int) -> None:
    assert torch.equal(Reads().images[index], RESIDENT[index])


@given(rows=st.lists(st.integers(0, N - 1), min_size=1, max_size=30), inside=st.slices(5))
def test_subsets_of_subsets_select_but_do_not_read(rows: list[int], inside: slice) -> None:
    reads, inside = Reads(), slice(inside.start, inside.stop)
    chosen = subset(subset(reads.images, torch.tensor(rows)), inside)
    expected = subset(subset(RESIDENT, torch.tensor(rows)), inside)
    assert chosen.shape == expected.shape
    assert len(chosen) == len(expected)
    assert not reads.counted
    assert torch.equal(chosen[:], expected)


@pytest.mark.parametrize("size", [1, 7, 40, 100])
def test_batches_are_the_tensors_and_are_read_once(size: int) -> None:
    reads = Reads()
    found, expected = list(reads.images.split(size)), RESIDENT.split(size)
    assert [len(part) for part in found] == [len(part) for part in expected]
    assert torch.equal(torch.cat(found), RESIDENT)
    assert set(reads.counted.values()) == {1}


def test_what_is_announced_is_read_once_and_only_once() -> None:
    reads, index = Reads(), torch.tensor([3, 1, 4])
    prefetch(reads.images, index)
    assert torch.equal(reads.images[index], RESIDENT[index])
    assert reads.counted == {3: 1, 1: 1, 4: 1}
    assert torch.equal(reads.images[index], RESIDENT[index])
    assert reads.counted == {3: 2, 1: 2, 4: 2}


def test_an_announcement_may_be_mistaken() -> None:
    reads = Reads()
    prefetch(reads.images, torch.tensor([3, 1, 4]))
    assert torch.equal(reads.images[5:9], RESIDENT[5:9])
    prefetch(reads.images, torch.tensor([2, 7]))
    assert torch.equal(reads.images[torch.tensor([3, 1, 4])], RESIDENT[[3, 1, 4]])
    assert torch.equal(reads.images[torch.tensor([2, 7])], RESIDENT[[2, 7]])


def test_pixels_come_out_on_the_device() -> None:
    images = Reads().images.to("meta")
    assert subset(images, slice(4))[:2].device.type == "meta"


ask: dict[str, Callable[[StreamedImages], object]] = {
    "at once": lambda images: images[:],
    "in batches": lambda images: list(images.split(5)),
    "announced": lambda images: (prefetch(images, torch.arange(N)), images[torch.arange(N)]),
}


@pytest.mark.parametrize("way", ask)
def test_an_image_that_cannot_be_read_is_named_to_who_asks(way: str) -> None:
    images = Reads(broken=23).images
    with pytest.raises(UserError, match="image 23 cannot be read"):
        ask[way](images)
    assert torch.equal(images[24:], RESIDENT[24:])  # the others can still be read


def test_nothing_is_read_after_an_error() -> None:
    reads = Reads(broken=0)
    rows = [0] + [row % N for row in range(1, 5000)]
    with pytest.raises(UserError):
        Reading(reads.read, rows, SIZE).result()
    assert sum(reads.counted.values()) < 5000


def test_a_process_that_ends_does_not_first_read_what_was_announced(tmp_path: Path) -> None:
    script = """
        import sys
        import numpy as np, torch
        from fscil.images import Source, StreamedImages, prefetch

        def read(row):
            with open("rows", "a") as file:
                file.write(".")
            return np.zeros((4, 4, 3), np.uint8)

        prefetch(StreamedImages(Source(read, 4, "", ["x"] * 200_000)), torch.arange(200_000))
        sys.exit(5)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True)
    assert (found.returncode, found.stderr) == (5, b"")
    assert (tmp_path / "rows").stat().st_size < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["always", "never"])
def test_ctrl_c_does_not_wait_for_an_image(tmp_path: Path, stream: str) -> None:
    """Every thread is held by an image that is never finished."""
    script = """
        import os, signal, sys, threading
        from pathlib import Path
        from fscil.datasets import decode

        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background
        unpressed = threading.Lock()

        def never(data, size, name):
            if unpressed.acquire(blocking=False):
                os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()

        decode.decode = never
        Path("image").touch()
        try:
            decode.read_files([Path("image")] * 3, ["a", "b", "c"], 8, sys.argv[1])[:]
        except KeyboardInterrupt:
            sys.exit(130)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), stream]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    assert (found.returncode, found.stderr) == (130, b"")


def test_of_several_images_that_cannot_be_read_the_first_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Event()

    def read(row: int) -> NDArray[np.uint8]:
        if row == 0:
            late.wait()
        late.set()
        raise UserError(f"image {row} cannot be read")

    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with pytest.raises(UserError, match="image 0"):
        Reading(read, range(4), SIZE).result()


@pytest.mark.parametrize(("cores", "processes", "threads"), [(64, 1, 16), (8, 1, 8), (64, 8, 8), (8, 3, 2), (4, 8, 1)])
def test_processes_of_one_machine_divide_its_cores_to_read(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int, threads: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert len(Reading(Reads().read, list(range(N)), SIZE).threads) == threads


def by_numpy(images: Tensor) -> tuple[list[float], list[float]]:
    pixels = images.numpy().astype(np.float64) / 255
    return pixels.mean((0, 2, 3)).tolist(), pixels.std((0, 2, 3)).tolist()


def test_mean_and_deviation_are_those_of_every_pixel() -> None:
    large = torch.randint(0, 200, (700, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    large[:, 1] //= 3
    for images in (large, RESIDENT):
        found, expected = mean_and_deviation(images), by_numpy(images)
        assert found[0] == pytest.approx(expected[0], rel=1e-13)
        assert found[1] == pytest.approx(expected[1], rel=1e-13)
    assert mean_and_deviation(large.flip(0)) == mean_and_deviation(large)  # the order leaves no trace in the last digit


def test_mean_and_deviation_read_streamed_images_once() -> None:
    reads = Reads()
    assert mean_and_deviation(reads.images) == mean_and_deviation(RESIDENT)
    assert reads.counted == dict.fromkeys(range(N), 1)


def test_of_very_many_images_evenly_spaced_ones_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fscil.images.MEASURED", 12)
    reads = Reads()
    found = mean_and_deviation(reads.images)
    assert found == mean_and_deviation(RESIDENT)
    assert sorted(reads.counted) == [0, 3, 6, 10, 13, 16, 20, 23, 26, 30, 33, 36]
    assert found[0] == pytest.approx(by_numpy(RESIDENT[sorted(reads.counted)])[0])


def test_a_channel_that_never_varies_can_still_be_divided_by() -> None:
    images = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    images[:, 0], images[0, 1] = 51, 255
    mean, deviation = mean_and_deviation(images)
    assert mean == (0.2, 0.25, 0.0)
    assert deviation == pytest.approx((1 / 255, np.sqrt(3) / 4, 1 / 255))


def test_contents_tell_images_and_their_order_apart() -> None:
    images = Reads().images
    known = {contents(subset(images, torch.tensor(rows))) for rows in ([0, 1], [1, 0], [0], [0, 2])}
    assert len(known) == 4
    again = StreamedImages(Source(Reads().read, SIZE, "another recipe", images.source.facts))
    assert contents(again) != contents(images)
    assert contents(Reads().images) == contents(images)
