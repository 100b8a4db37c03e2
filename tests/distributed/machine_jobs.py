"""What two processes do in tests where each has its own machine: its own files, cores and timeout."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import jobs
import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from torch import Tensor

from fscil import augment, distributed, runs
from fscil.benchmark import Session, digest
from fscil.config import resolve
from fscil.datasets import folder as photos
from fscil.engine import Engine
from fscil.episodes import EmbeddingTasks, TaskShape
from fscil.images import Source, StreamedImages, contents
from fscil.methods import Context, encoder_cache
from fscil.model import ModelSpec, build

COLOURS = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))  # their mean and standard deviation

# the parts for which the second machine has other pictures under the same names
OTHER_PICTURES = ("nothing", "the test set", "other trials", "the base session")


def copies(folder: Path, other: str) -> Path:
    """Photos of one machine, in a folder named after what is later changed on the other."""
    jobs.write_photos(folder / other)
    return folder / other


def change(tree: Path, what: str) -> None:
    """Other pictures in place of those; a plain one is a shorter file."""
    benchmark = photos.load(photos.FolderOptions(path=str(tree), way=1, shot=2, size=8, stream="always"))
    parts = {"the test set": benchmark.test_images, "the base session": benchmark.sessions[0].images}
    parts["other trials"] = benchmark.pool.images
    if what == "nothing":
        return
    images = parts[what]
    assert isinstance(images, StreamedImages)
    shots = {row for session in benchmark.sessions[1:] for row in session.images.rows.tolist()}
    for row in set(images.rows.tolist()) - shots:
        name = images.source.facts[row].rsplit(" ", 2)[0]  # before length and time
        Image.new("RGB", (8, 8), "teal").save(tree / name)


def learn_copies(folder: Path) -> dict[str, str]:
    """How a run was refused, by reading mode and by what differs."""
    said = {}
    with chdir(folder / str(distributed.rank())):
        for stream in ("never", "always"):
            for other in OTHER_PICTURES:
                settings = [f"path={other}", "way=1", "shot=2", "size=8", "encoder=small", "epochs=1"]
                config = resolve("decoupled-cosine", "folder", [*settings, f"stream={stream}"], seed=1)
                where = runs.RunEnvironment(torch.device("cpu"), Path(f"run of {other}, {stream}"))
                start = lambda c=config, w=where: runs.start(c, w, Console(quiet=True))  # noqa: E731
                said[f"{stream}, {other}"] = jobs.refusal(start)
    return said


def wait_for_the_cache(folder: Path) -> list[float]:
    """How long process 0 waits for a lock before it answers the others, while another run holds it."""
    os.environ.update(FSCIL_CACHE=str(folder / "cache"), FSCIL_TIMEOUT="1")
    context, session = Context(Engine(console=Console(quiet=True)), *COLOURS), jobs.session(range(2), 2)
    own = encoder_cache.key({}, digest(contents(session.images), session.labels), context, "pretrain")
    path = folder / "cache" / "encoders" / f"{own}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    held, waited, take = FileLock(path), [], encoder_cache.take
    if distributed.is_rank_zero():
        held.acquire()

    def recorded(lock: FileLock, engine: Engine, seconds: float) -> str:
        waited.append(seconds)
        if len(waited) == 3:
            held.release()
        return take(lock, engine, seconds if len(waited) == 3 else 0)

    encoder_cache.take = recorded
    with encoder_cache.entry({}, session, context, "pretrain") as entry:
        assert type(entry) is encoder_cache.Entry
    encoder_cache.take = take
    os.environ.update(FSCIL_CACHE="off", FSCIL_TIMEOUT="600")
    return waited


class Reads:
    """A streamed base session that counts how often an image is read."""

    def __init__(self) -> None:
        self.count = 0
        self.resident = jobs.session(range(5), 7)
        source = Source(self.read, 8, "", [str(row) for row in range(35)])
        self.session = replace(self.resident, images=StreamedImages(source))

    def read(self, row: int) -> NDArray[np.uint8]:
        self.count += 1
        return self.resident.images[row].permute(1, 2, 0).numpy()


def embed_in_shares() -> dict[str, int]:
    """How many of 35 images this process reads to embed them, after checking the embeddings of all.

    Fake tasks are of 3 images of each class, and of 10 pairs of classes with 9 blends of two images each.
    """
    torch.manual_seed(1)
    model = build(ModelSpec("small", 8, 8, *COLOURS, mirror=True), classes=5)
    shape, plain = TaskShape(1, 2, 2, 1, "mixed"), augment.build("none", size=8)

    def of_fake_tasks(session: Session) -> Tensor:
        tasks = EmbeddingTasks(session, shape, plain, model.embed_here, 1)
        return torch.cat([tasks.embeddings[:, 0], tasks.pool.flatten(0, 1)])

    embed: dict[str, Callable[[Session], Tensor]] = {
        "encoder": lambda session: model.encoder.embed(session.images),
        "model": lambda session: model.embed(session.images),
        "fake tasks": of_fake_tasks,
    }
    count = {}
    for what, function in embed.items():
        reads = Reads()
        assert torch.allclose(function(reads.session), function(reads.resident), atol=1e-6)
        count[what] = reads.count
    return count


# runs by what is too small for two processes; photos of six classes, of which three are base classes
SMALL_STEPS = {
    "session": ("finetune", ["way=1", "shot=1"]),
    "batch": ("decoupled-cosine", ["way=1", "shot=2", "batch=1"]),
    "plain batch": ("limit", ["way=1", "shot=2", "batch=1", "tasks=plain"]),
}


def take_small_steps(folder: Path) -> dict[str, list[str]]:
    """How each is refused, and what had been trained by then."""
    said = {}
    with chdir(folder / str(distributed.rank())):
        for name, (method, settings) in SMALL_STEPS.items():
            more = ["path=nothing", "size=8", "stream=never", "encoder=small", "epochs=1"]
            config = resolve(method, "folder", [*settings, *more], seed=1)
            where = runs.RunEnvironment(torch.device("cpu"), Path(f"run of small {name}"))
            start = lambda c=config, w=where: runs.start(c, w, Console(quiet=True))  # noqa: E731
            said[name] = [jobs.refusal(start), *sorted(str(path) for path in where.folder.rglob("*"))]
    return said


def everything(folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["FSCIL_CACHE"] = "off"
    found = {
        "copies": learn_copies(folder),
        "waited": wait_for_the_cache(folder),
        "read": embed_in_shares(),
        "small steps": take_small_steps(folder),
    }
    (folder / f"found-{distributed.rank()}.json").write_text(json.dumps(found))
