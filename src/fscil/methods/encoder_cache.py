"""A cache of pre-trained encoders, reused by every method and run that would train the same one."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

import fscil
from fscil import distributed
from fscil.benchmark import Session, digest
from fscil.engine import Engine
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.errors import UserError
from fscil.images import contents
from fscil.methods.method import Context

# everything that affects the weights that pre-training produces
CODE = (
    "encoders", "kernels", "augment", "distributed", "engine", "calibrators", "datasets/decode.py", "images.py",
    "reading.py", "model.py", "methods/pretrain.py", "methods/training.py",
)  # fmt: skip


def cache_folder() -> Path:
    """FSCIL_CACHE, or the user's cache folder. FSCIL_CACHE=off turns the cache off."""
    if chosen := os.environ.get("FSCIL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fscil"


def is_off() -> bool:
    return str(cache_folder()) == "off"


@cache
def code_version() -> str:
    """A digest of the source code behind pre-training, since another version of it trains another encoder."""
    package = Path(fscil.__file__).parent
    files = sorted(
        f for part in CODE for f in ([package / part] if part.endswith(".py") else (package / part).rglob("*.py"))
    )
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


def source_digest(*objects: Callable[..., object]) -> str | None:
    """A digest of the files that define them: another version may train another encoder. None if there is no file."""
    found = hashlib.sha256()
    for each in objects:
        try:
            found.update(Path(inspect.getsourcefile(each) or "").read_bytes())
        except (TypeError, OSError):  # built in, or typed into a notebook
            return None
    return found.hexdigest()[:16]


def key(facts: Mapping[str, Any], session_digest: str, context: Context, name: str) -> str:
    """Facts: the settings that matter, and what they refer to (which weights, which objective)."""
    engine = context.engine
    everything = {
        "facts": dict(facts),
        "data": [session_digest, context.mean, context.std],
        "seed": [engine.seed, name],
        "code": [code_version(), torch.__version__],
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
        if not self.path.exists():
            return None
        try:
            tensors, about = load_tensors(self.path)
            found = {name: about[name] for name in ("seconds", "captured")}
            if shapes(tensors) != shapes(network.state_dict()):
                raise UserError(f"{self.path} holds a different network")
        except (UserError, KeyError) as error:  # a run is worth more than its cache
            self.engine.console.print(f"the cached encoder cannot be used and will be trained again: {error}")
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


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


class NoEntry(Entry):
    def read_into(self, network: nn.Module) -> dict[str, Any] | None:
        return None

    def save(self, network: nn.Module) -> None:
        pass


@contextmanager
def entry(facts: Mapping[str, Any], session: Session, context: Context, name: str) -> Iterator[Entry]:
    """The cache entry for this encoder, locked: of several runs that need it, only one trains it."""
    # the session is identified by its pixels or files, to the last byte: two of them must never be confused
    known = not is_off() and facts.get("code", "") is not None
    own = "off" if not known else key(facts, digest(contents(session.images), session.labels), context, name)
    path = cache_folder() / "encoders" / f"{own}.safetensors"
    lock = FileLock(path.with_suffix(".lock"))
    answer, seconds = "wait", 0.0
    while answer == "wait":  # rank 0 answers regularly, so that the other ranks do not time out
        answer = distributed.broadcast(partial(take, lock, context.engine, seconds)) if known else "no"
        seconds = 60 if distributed.is_single_process() else min(60, distributed.timeout().total_seconds() / 2)
    if answer == "no":
        yield NoEntry(path, context.engine, name)
        return
    try:
        yield Entry(path, context.engine, name)
    finally:
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
