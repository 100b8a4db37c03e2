"""The process group: how the ranks that torchrun started join, which of them prints, and how they exit."""

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

from fscil.distributed.orphans import is_orphan, leave_with_torchrun
from fscil.environment import whole_number
from fscil.errors import LostContact, UserError

LONGEST_TIMEOUT = 30 * 24 * 3600

# the rendezvous store, which outlives every rank: a rank that refuses to run leaves the reason here for the others
_board: Any = None


def is_single_process() -> bool:
    """Whether there is no process group: nothing to exchange, and nobody to wait for."""
    return not (dist.is_available() and dist.is_initialized())


def world_size() -> int:
    """How many ranks train together."""
    return 1 if is_single_process() else dist.get_world_size()


def rank() -> int:
    """The rank of this process; 0 if it is the only one."""
    return 0 if is_single_process() else dist.get_rank()


def is_rank_zero() -> bool:
    """Rank 0 alone reads and writes run folders and the cache, and prints."""
    return rank() == 0


def initialise(meeting: str = "env://", least: int = 2) -> None:
    """Join the process group if torchrun's environment variables give it at least `least` ranks."""
    global _board
    if "RANK" not in os.environ:
        return
    count = check_environment(meeting)
    limit = timeout()
    leave_with_torchrun(limit)
    if count < least:
        return
    from torch.distributed.distributed_c10d import PrefixStore  # not part of every build of torch
    from torch.distributed.rendezvous import rendezvous

    own = int(os.environ["RANK"])
    # gloo even beside NCCL, to exchange objects without a GPU
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    try:
        _board, own, count = next(rendezvous(meeting, own, count, timeout=limit))
        group = PrefixStore("group", _board)
        dist.init_process_group(backend, store=group, rank=own, world_size=count, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise LostContact(f"process {own} could not connect to the others ({_cause(error)})") from error
    signal.signal(signal.SIGTERM, _told_to_stop)


def check_environment(meeting: str) -> int:
    """The number of ranks, if what torchrun sets is all there and makes sense."""
    needed = ["WORLD_SIZE", *(["MASTER_ADDR", "MASTER_PORT"] if meeting == "env://" else [])]
    if missing := [name for name in needed if name not in os.environ]:
        raise UserError(f"RANK is set, but not {', '.join(missing)}; start processes with torchrun, or unset RANK")
    count = whole_number("WORLD_SIZE", least=1)
    whole_number("RANK", most=count - 1)
    whole_number("LOCAL_RANK", 0)
    if meeting == "env://":
        whole_number("MASTER_PORT", most=65535)
    return count


def timeout() -> timedelta:
    """How long to wait for a rank that hangs; one that dies is noticed at once, by its closed connection."""
    return timedelta(seconds=whole_number("FSCIL_TIMEOUT", 600, least=1, most=LONGEST_TIMEOUT))


def shut_down() -> None:
    if not is_single_process():
        gc.collect()  # captured steps hold collectives of the group, and NCCL waits for them
        dist.destroy_process_group()


def select_gpu() -> None:
    """Each rank on a machine takes its own GPU."""
    if is_single_process():
        return
    own, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if own >= count:
        raise UserError(
            f"more processes than the {count} GPUs of this machine; start torchrun with --nproc-per-node {count}, "
            "or add --device cpu"
        )
    torch.cuda.set_device(own)


# -- which rank prints -----------------------------------------------------------------------------------------------
@contextmanager
def print_on_rank_zero_only() -> Iterator[None]:
    """Let only rank 0 print what all ranks would print."""
    if is_rank_zero():
        yield
        return
    with (
        open(os.devnull, "w", encoding="utf-8", errors="replace") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def is_reporter(refusal: str | None = None) -> bool:
    """Whether this rank is the one to say why the job ends: rank 0 if it can, else the first that asks.

    A refusal is something the user can fix; the other ranks then exit with the same message.
    """
    if _board is None:
        return True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is exiting already
    with contextlib.suppress(RuntimeError):  # torchrun itself has exited, and the store with it
        if refusal is not None and not _board.check(["refusal"]):
            _board.set("refusal", refusal)
        if not is_rank_zero():
            with contextlib.suppress(RuntimeError):  # timed out: rank 0 has nothing to report
                _board.wait(["spoken"], timedelta(seconds=2))
        return _board.add("spoken", 1) == 1
    return os.environ.get("LOCAL_RANK", "0") == "0"


# -- how ranks exit --------------------------------------------------------------------------------------------------
@contextmanager
def contact() -> Iterator[None]:
    """Around every collective: a failure becomes LostContact, or another rank's refusal."""
    try:
        yield
    except RuntimeError as error:  # from gloo, NCCL or the store
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise  # it is the capture that failed
        raise lost(f"lost contact with the others ({_cause(error)})") from error


def _told_to_stop(number: int, frame: FrameType | None) -> None:
    """SIGTERM: torchrun ends the whole job when one rank has failed."""
    if isinstance(sys.exc_info()[1], (UserError, LostContact)):
        return  # it is about to exit
    if is_orphan():
        raise lost("lost contact with torchrun, which has died")
    raise lost("lost contact with the others (torchrun ended the job, probably because another one failed)")


def lost(what: str) -> Exception:
    """Why this rank cannot continue: another rank's refusal, if there was one."""
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
    """Exit at once in a process group: tearing the group down can hang when one of its ranks is gone."""
    if is_single_process():
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
