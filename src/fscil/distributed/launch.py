"""Being one of several processes that torchrun has started: how they meet, who speaks, how they end."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from fscil.errors import LostContact, UserError

# shared by all processes and outliving each of them: who is refused or lost says so here
_board: Any = None


def is_single_process() -> bool:
    """Whether this process belongs to no group: there is nothing to exchange, and nobody to wait for."""
    return not (dist.is_available() and dist.is_initialized())


def world_size() -> int:
    """How many processes train together."""
    return 1 if is_single_process() else dist.get_world_size()


def rank() -> int:
    """The number of this process among them."""
    return 0 if is_single_process() else dist.get_rank()


def is_rank_zero() -> bool:
    """Whether this is process 0, which alone reads and writes run folders and the cache, and speaks."""
    return rank() == 0


def initialise(meeting: str = "env://", least: int = 2) -> None:
    """Meet the other processes, if the environment (torchrun's) says that there are at least so many in all."""
    global _board
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < least:
        return
    from torch.distributed.distributed_c10d import PrefixStore  # not part of every build of torch
    from torch.distributed.rendezvous import rendezvous

    limit = timeout()
    own, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # gloo also beside NCCL: what processes tell each other besides tensors needs no GPU
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    try:
        _board, own, count = next(rendezvous(meeting, own, count, timeout=limit))
        group = PrefixStore("group", _board)
        dist.init_process_group(backend, store=group, rank=own, world_size=count, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise LostContact(f"process {own} could not meet the others ({_cause(error)})") from error
    signal.signal(signal.SIGTERM, _told_to_stop)


def timeout() -> timedelta:
    """How long others are waited for. Who dies is noticed at once, by closed connections; this is for who hangs."""
    named = os.environ.get("FSCIL_TIMEOUT", "600")
    try:
        return timedelta(seconds=max(1, int(named)))
    except ValueError:
        raise UserError(f"FSCIL_TIMEOUT={named} is no number of seconds") from None


def shut_down() -> None:
    if not is_single_process():
        gc.collect()  # NCCL waits for every captured step that holds exchanges of its
        dist.destroy_process_group()


def select_gpu() -> None:
    """Every process of a machine takes a GPU of its own."""
    if is_single_process():
        return
    own, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if own >= count:
        raise UserError(
            f"more processes than the {count} GPUs of this machine; start torchrun with --nproc-per-node {count}, "
            "or add --device cpu"
        )
    torch.cuda.set_device(own)


# -- who speaks ------------------------------------------------------------------------------------------------------
@contextmanager
def print_on_rank_zero_only() -> Iterator[None]:
    """What all processes would print alike is printed by process 0 alone."""
    if is_rank_zero():
        yield
        return
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def is_reporter(refusal: str | None = None) -> bool:
    """Whether it is for this process to say why the job ends: the first if it can, else whoever asks first.

    A refusal is what the user can put right: the other processes then end with it too.
    """
    if _board is None:
        return True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
    with contextlib.suppress(RuntimeError):  # torchrun itself is gone, and the board with it
        if refusal is not None and not _board.check(["refusal"]):
            _board.set("refusal", refusal)
        if not is_rank_zero():
            with contextlib.suppress(RuntimeError):  # it takes too long: the first process has no reason to speak
                _board.wait(["spoken"], timedelta(seconds=2))
        return _board.add("spoken", 1) == 1
    return os.environ.get("LOCAL_RANK", "0") == "0"


# -- how they end ----------------------------------------------------------------------------------------------------
@contextmanager
def contact() -> Iterator[None]:
    """Around everything that needs the other processes."""
    try:
        yield
    except RuntimeError as error:  # of gloo, NCCL and the store alike
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise  # it is the capture that failed
        raise lost(f"lost contact with the others ({_cause(error)})") from error


def _told_to_stop(number: int, frame: FrameType | None) -> None:
    """torchrun ends the whole job when one process has failed."""
    if isinstance(sys.exc_info()[1], (UserError, LostContact)):
        return  # it is about to end
    raise lost("was told to stop, as when another one has failed")


def lost(what: str) -> Exception:
    """Why this process cannot go on: another one's refusal, if there was one."""
    if _board is not None:
        with contextlib.suppress(RuntimeError):
            if _board.check(["refusal"]):
                return UserError(_board.get("refusal").decode())
    return LostContact(f"process {rank()} {what}")


def _cause(error: Exception) -> str:
    """The gist of gloo's and NCCL's messages: without the source file before it and the advice after it."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^\[\S+:\d+\]\s*", "", first).split(". ")[0].rstrip(".")


def exit_process(code: int) -> NoReturn:
    """Leave at once where others may be waiting: taking a group apart can hang when one of its processes is gone."""
    if is_single_process():
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
