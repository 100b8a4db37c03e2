"""A cache of pre-trained encoders, reused by every method and run that would train the same one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from fscil import distributed
from fscil.benchmark import Session, digest
from fscil.code_version import PRETRAINING, digest_of_parts
from fscil.engine import Engine
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError
from fscil.images import contents
from fscil.methods.method import Context


def cache_folder() -> Path | None:
    """FSCIL_CACHE, or the user's cache folder. None if FSCIL_CACHE=off turns the cache off, or nobody has a home."""
    chosen = os.environ.get("FSCIL_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    if chosen.casefold() == "off":
        return None
    folder = Path(os.path.expanduser(chosen))
    if folder.parts[0].startswith("~"):
        if os.environ.get("FSCIL_CACHE"):
            raise UserError(f"FSCIL_CACHE={chosen} names nobody's home; give the folder's full path, or off")
        return None
    return folder if os.environ.get("FSCIL_CACHE") else folder / "fscil"


def key(facts: Mapping[str, Any], session_digest: str, context: Context, name: str) -> str:
    """Facts: the settings that matter, and what they refer to (which weights, which objective)."""
    engine = context.engine
    everything = {
        "facts": dict(facts),
        "data": [session_digest, context.mean, context.std],
        "seed": [engine.seed, name],
        "code": [digest_of_parts(PRETRAINING), torch.__version__],
        "precision": f"{engine.device.type}-{'bfloat16' if engine.bfloat16 else 'float32'}",
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:24]


@dataclass
class Entry:
    """Rank 0 reads and writes for all ranks."""

    path: Path
    engine: Engine
    stage: str

    def load(self, network: nn.Module) -> bool:
        """Fill the network if the cache has it; the stage then reports its original seconds."""
        about = distributed.broadcast(lambda: self.read_into(network))
        if about is None:
            return False
        distributed.broadcast_module(network)
        self.engine.seconds[self.engine.scope + self.stage] = {"seconds": about["seconds"], "cached": True}
        self.engine.captured.append(about["captured"])
        return True

    def read_into(self, network: nn.Module) -> dict[str, Any] | None:
        """Fill rank 0's network; a file that cannot be used is set aside, since every later run would meet it again."""
        if not os.path.lexists(self.path):
            return None
        try:
            tensors, about = load_tensors(self.path, "it was changed after it was written")
            found = {"seconds": float(about["seconds"]), "captured": bool(about["captured"])}
            if shapes(tensors) != shapes(network.state_dict()):
                raise ValueError("it holds a different network")
        except (UserError, KeyError, TypeError, ValueError) as error:  # a run is worth more than its cache
            aside = self.path.with_suffix(".damaged")
            with suppress(OSError):
                os.replace(self.path, aside)
            self.engine.console.print(
                f"a cached encoder cannot be used: {error}. It was set aside as {aside}, and is trained again",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
            return None
        network.load_state_dict(tensors)
        return found

    def save(self, network: nn.Module) -> None:
        if not distributed.is_rank_zero():
            return
        seconds = self.engine.seconds[self.engine.scope + self.stage]["seconds"]
        try:
            save_tensors(self.path, network.state_dict(), {"seconds": seconds, "captured": self.engine.captured[-1]})
        except UserError as error:  # a run is worth more than its cache
            self.engine.console.print(f"the encoder was not cached: {error}")


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


class NoEntry(Entry):
    def read_into(self, network: nn.Module) -> dict[str, Any] | None:
        return None

    def save(self, network: nn.Module) -> None:
        pass


@contextmanager
def entry(facts: Mapping[str, Any], session: Session, context: Context, name: str) -> Iterator[Entry]:
    """The cache entry for this encoder, locked: of several runs that need it, only one trains it."""
    # the session is identified by its pixels or files, to the last byte: two of them must never be confused
    folder = cache_folder()
    if folder is None or facts.get("code", "") is None:
        yield NoEntry(Path(), context.engine, name)
        return
    own = key(facts, digest(contents(session.images), session.labels), context, name)
    path = folder / "encoders" / f"{own}.safetensors"
    lock = FileLock(path.with_suffix(".lock"))
    answer, seconds = "wait", 0.0
    while answer == "wait":  # rank 0 answers regularly, so that the other ranks do not time out
        answer = distributed.broadcast(partial(take, lock, context.engine, seconds))
        seconds = 60 if distributed.is_single_process() else min(60, distributed.timeout().total_seconds() / 2)
    if answer == "no":
        yield NoEntry(path, context.engine, name)
        return
    try:
        if distributed.is_rank_zero():
            sweep(path.parent, path.stem)
        yield Entry(path, context.engine, name)
    finally:
        lock.release()


def sweep(folder: Path, own: str) -> None:
    """Remove what killed runs left half-written: of this entry, and of others whose lock nobody holds."""
    with suppress(OSError):
        for path in folder.glob(".*.safetensors.*.part"):
            entry_name = path.name.removeprefix(".").partition(".")[0]
            lock = FileLock(folder / f"{entry_name}.lock")
            with suppress(TimeoutError):
                if entry_name != own:
                    lock.acquire(timeout=0)
                path.unlink(missing_ok=True)
                lock.release()


def take(lock: FileLock, engine: Engine, seconds: float) -> str:
    """Try to take the lock within `seconds`: yes, wait (another run holds it) or no (there is no cache)."""
    folder = Path(lock.lock_file).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=seconds)
    except TimeoutError:
        if seconds == 0:
            engine.console.print("waiting for another run that is training the same encoder")
        return "wait"
    except OSError as error:
        engine.console.print(f"no cache: {folder} cannot be used ({error.strerror})")
        return "no"
    return "yes"
