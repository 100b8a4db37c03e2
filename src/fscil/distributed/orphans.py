"""Processes whose parent was killed with SIGKILL, and so could not end them, end by themselves.

The parent is torchrun, or a command that computes several runs at once.
"""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from threading import Thread

import torch.distributed as dist

LOOK_EVERY = 1.0  # seconds
LONGEST_GOODBYE = 10.0  # seconds to say how to continue
PARENT = "FSCIL_PARENT"  # environment variable: the command that started this process for one of its runs

_torchrun: int | None = None  # its process, if it started this one


def leave_with_torchrun(limit: timedelta) -> None:
    """Exit when torchrun dies. Other launchers are not watched: a shell may exit and leave its processes running."""
    global _torchrun
    if _torchrun is None and dist.is_available() and dist.is_torchelastic_launched():
        _torchrun = os.getppid()
        _watch(_torchrun, min(LONGEST_GOODBYE, limit.total_seconds() / 2))


def leave_with_command() -> None:
    """Exit when the command dies that started this process for one of its runs."""
    if parent := os.environ.pop(PARENT, ""):
        _watch(int(parent), LONGEST_GOODBYE)


def is_orphan() -> bool:
    return _torchrun is not None and os.getppid() != _torchrun


def _watch(parent: int, goodbye: float) -> None:
    Thread(target=_end_after, args=(parent, goodbye), daemon=True).start()


def _end_after(parent: int, goodbye: float) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)  # in good order, if the main thread is able to
    time.sleep(goodbye)
    os._exit(1)
