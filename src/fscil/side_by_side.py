"""Runs side by side, each in a process of its own: what one run leaves idle of a GPU, another one uses."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, current_thread, main_thread

import torch

from fscil import distributed
from fscil.config import Config
from fscil.distributed.orphans import PARENT
from fscil.errors import UserError
from fscil.methods.pretrain import PretrainSettings
from fscil.runs import RunEnvironment

PRETRAINING = [field.name for field in dataclasses.fields(PretrainSettings) if field.name != "recipe"]
USERS_MISTAKE = 2  # exit code


@dataclass
class Child:
    """A run, and the process that computes it."""

    config: Config
    environment: RunEnvironment  # its own folder
    resumes: bool
    seconds: float = 0.0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def command(self) -> list[str]:
        config, environment = self.config, self.environment
        what = [config.preset, config.benchmark, *config.changed, "--seed", str(config.seed)]
        where = ["--resume" if self.resumes else "--out", str(environment.folder)]
        how = ["--device", environment.device.type, "--checkpoint-every", str(environment.checkpoint_seconds)]
        root = ["--root", str(environment.root)] if environment.root else []
        # -P: a file of the current folder must not replace a module of the same name
        return [sys.executable, "-P", "-m", "fscil", "run", *([] if self.resumes else what), *where, *how, *root]

    def variables(self, surroundings: Mapping[str, str]) -> dict[str, str]:
        """It ends if this process is killed in a way that leaves no time to end it."""
        return {**os.environ, **surroundings, PARENT: str(os.getpid())}

    def compute(self, surroundings: Mapping[str, str], stop: Event) -> None:
        """Wait until it has finished; what it says is shown only if it fails."""
        started = time.perf_counter()
        with tempfile.TemporaryFile() as said:
            self.process = subprocess.Popen(self.command, stdout=said, stderr=said, env=self.variables(surroundings))
            if stop.is_set():  # since just now, when there was nothing to end yet
                self.end()
            if code := self.process.wait():
                said.seek(0)
                raise self.failure(code, said.read().decode(errors="replace").strip())
        self.seconds = time.perf_counter() - started

    def failure(self, code: int, said: str) -> Exception:
        name = f"{self.config.preset} on {self.config.benchmark}, seed {self.config.seed}"
        if code < 0:
            return UserError(
                f"{name}: its process was ended by {signal.Signals(-code).name}; if memory ran out, lower --jobs"
            )
        if code == USERS_MISTAKE and said:
            return UserError(f"{name}: {said.splitlines()[-1].removeprefix('error: ')}")
        return RuntimeError(f"{name}: exit code {code}\n{said}")

    def end(self) -> None:
        """By SIGTERM, since a run may be killed at any moment; a command in the background would ignore a SIGINT."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.terminate()


def compute_all(
    children: Sequence[Child], at_once: int, began: Callable[[Child], None], ended: Callable[[Child], None]
) -> None:
    """Compute all runs, so many at once. Of those that need the same encoder, one goes first and trains it for all.

    If one fails, or at Ctrl-C, the others are ended; all of them can be resumed.
    """
    if distributed.world_size() > 1:
        raise UserError("several runs at once and torchrun do not go together; leave out --jobs")
    families: dict[str, list[Child]] = {}
    for child in children:
        families.setdefault(encoder_of(child.config), []).append(child)
    places: SimpleQueue[dict[str, str]] = SimpleQueue()
    for place in places_for(at_once, children[0].environment.device):
        places.put(place)
    stop, failures = Event(), list[BaseException]()

    def compute(child: Child) -> None:
        place = places.get()  # there are as many as threads
        try:
            if not stop.is_set():
                began(child)
                child.compute(place, stop)
        except BaseException as error:
            failures.append(error)  # the first one is the cause: it ends the others
            stop.set()
            raise
        finally:
            places.put(place)

    running: dict[Future[None], Child] = {}
    with ThreadPoolExecutor(at_once) as pool, stopped_by_sigterm():
        try:
            for eldest, *_ in families.values():
                running[pool.submit(compute, eldest)] = eldest
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    child = running.pop(future)
                    if stop.is_set():
                        raise failures[0]
                    ended(child)
                    for younger in families.pop(encoder_of(child.config), [])[1:]:
                        running[pool.submit(compute, younger)] = younger
        except BaseException:
            stop.set()
            for child in children:
                child.end()
            raise


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """So that the processes do not go on by themselves."""
    if current_thread() is not main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def places_for(at_once: int, device: torch.device) -> list[dict[str, str]]:
    """Environment variables for each of the processes that run at once: its share of the cores, and its GPU."""
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // at_once)))
    count = torch.cuda.device_count() if device.type == "cuda" else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    gpus = [{"CUDA_VISIBLE_DEVICES": visible[i % count]} if count > 1 else {} for i in range(at_once)]
    return [{"OMP_NUM_THREADS": threads, **gpu} for gpu in gpus]


def encoder_of(config: Config) -> str:
    """The same for runs that pre-train in the same way; a run with a training of its own is alone."""
    if "recipe" not in config.settings or config.own_training:
        return config.hash
    settings = {name: config.settings[name] for name in PRETRAINING}
    data = {name: value for name, value in config.options.items() if name != "trial"}  # it draws shots of new classes
    run = [config.run[key] for key in ("validation", "precision")]
    return json.dumps([config.benchmark, data, run, config.seed, settings], default=str)
