"""What two processes do together in the tests that each has a machine of its own: its own files, cores and patience."""

from __future__ import annotations

import json
import os
from contextlib import chdir
from pathlib import Path

import jobs
import torch
from filelock import FileLock
from PIL import Image
from rich.console import Console

from fscil import runs
from fscil.config import resolve
from fscil.datasets import folder as photos
from fscil.engine import Engine, processes
from fscil.images import StreamedImages
from fscil.methods import Context, encoder_cache

# what the second machine has other pictures of, under the same names
OTHER_PICTURES = ("nothing", "the test set", "other trials", "the base session")


def copies(folder: Path, other: str) -> Path:
    """Photos of one machine, in a folder of the name of what is later changed on the other."""
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
    """By way of reading and what is different, how a run was refused."""
    said = {}
    with chdir(folder / str(processes.rank())):
        for stream in ("never", "always"):
            for other in OTHER_PICTURES:
                settings = [f"path={other}", "way=1", "shot=2", "size=8", "encoder=small", "epochs=1"]
                config = resolve("decoupled-cosine", "folder", [*settings, f"stream={stream}"], seed=1)
                where = runs.Where(torch.device("cpu"), Path(f"run of {other}, {stream}"))
                start = lambda c=config, w=where: runs.start(c, w, Console(quiet=True))  # noqa: E731
                said[f"{stream}, {other}"] = jobs.refusal(start)
    return said


def wait_for_the_cache(folder: Path) -> list[float]:
    """How long process 0 waits for a lock before the others hear of it; another run holds that for a while."""
    os.environ.update(FSCIL_CACHE=str(folder / "cache"), FSCIL_TIMEOUT="1")
    context = Context(Engine(console=Console(quiet=True)), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "colours")
    path = folder / "cache" / "encoders" / f"{encoder_cache.key({}, context)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    held, waited, take = FileLock(path), [], encoder_cache.take
    if processes.leads():
        held.acquire()

    def recorded(lock: FileLock, engine: Engine, seconds: float) -> str:
        waited.append(seconds)
        if len(waited) == 3:
            held.release()
        return take(lock, engine, seconds if len(waited) == 3 else 0)

    encoder_cache.take = recorded
    with encoder_cache.entry({}, context) as entry:
        assert type(entry) is encoder_cache.Entry
    encoder_cache.take = take
    os.environ.update(FSCIL_CACHE="off", FSCIL_TIMEOUT="600")
    return waited


def everything(folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["FSCIL_CACHE"] = "off"
    found = {"copies": learn_copies(folder), "waited": wait_for_the_cache(folder)}
    (folder / f"found-{processes.rank()}.json").write_text(json.dumps(found))
