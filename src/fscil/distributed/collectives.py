"""What ranks exchange.

The encoder is data parallel: a rank encodes its shard of a step's images, and the embeddings are all-gathered.
Everything after it (rows, calibrator, loss) is computed by every rank from the same numbers. In a single process every
function here returns its input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fscil.distributed.launch import contact, is_rank_zero, is_single_process, lost, rank, timeout, world_size
from fscil.errors import CannotLearn, UserError

T = TypeVar("T")


def check_step_size(n: int, what: str, remedy: str) -> None:
    """Refuse steps with so few images that some rank would have none."""
    if n < world_size():
        raise CannotLearn(
            f"{what} of {n} images cannot be shared by {world_size()} processes; start fewer, or {remedy}"
        )


def shard(n: int, of: int | None = None) -> slice:
    """Which of a step's n images a rank (this one by default) encodes; shards differ by one image at most."""
    check_step_size(n, "a step", "take more images a step")
    of = rank() if of is None else of
    return slice(n * of // world_size(), n * (of + 1) // world_size())


def all_gather_shards(embeddings: Tensor, n: int) -> Tensor:
    """This rank's shard of n embeddings [shard, d] -> those of all ranks, in order [n, d]."""
    return embeddings if is_single_process() else _Gather.apply(embeddings, n)


def map_shards(n: int, embed: Callable[[slice], Tensor]) -> Tensor:
    """Embeddings [n, d] of n images; each rank embeds its shard, or all if there are fewer images than ranks."""
    return embed(slice(n)) if n < world_size() else all_gather_shards(embed(shard(n)), n)


class _Gather(torch.autograd.Function):
    """Every rank then computes the same loss L of all embeddings, and its own shard gets world_size * dL/d(shard).

    So the mean over the ranks, which the stepper takes of every gradient, is the full gradient for parameters before
    the all-gather (the sum of its parts) as well as after it (the same on every rank).
    """

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, n: int) -> Tensor:
        ctx.n = n
        shares = [shard(n, each) for each in range(world_size())]
        most = max(each.stop - each.start for each in shares)
        padded = embeddings.new_zeros(most, *embeddings.shape[1:])
        padded[: len(embeddings)] = embeddings
        parts = all_gather(padded)
        return torch.cat([part[: each.stop - each.start] for part, each in zip(parts, shares, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][shard(ctx.n)] * world_size(), None


def all_gather(tensor: Tensor) -> Tensor:
    """Tensors of equal shape [n, ...] from all ranks -> [world_size, n, ...]"""
    found = tensor.new_empty(world_size() * len(tensor), *tensor.shape[1:])
    with contact():
        dist.all_gather_into_tensor(found, tensor.contiguous())
    return found.unflatten(0, (world_size(), -1))


def all_reduce(tensor: Tensor) -> Tensor:
    """The sum over all ranks, in place."""
    with contact():
        dist.all_reduce(tensor)
    return tensor


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """The mean over the ranks, in one all-reduce."""
    if is_single_process():
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    means = all_reduce(torch.cat([gradient.flatten() for gradient in gradients])) / world_size()
    for gradient, mean in zip(gradients, means.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view(gradient.shape))


def wait_for(tensor: Tensor) -> Tensor:
    """Wait for a GPU tensor in Python: a wait inside CUDA for a rank that is gone could not be interrupted.

    Nor would NCCL time out when another rank hangs: it does not watch collectives inside a captured step.
    """
    if not is_single_process() and tensor.is_cuda:
        reached = torch.cuda.Event()
        reached.record()
        poll(reached.query)
    return tensor


def poll(done: Callable[[], bool]) -> None:
    """Wait until it is done, or raise when the timeout expires."""
    seconds = timeout().total_seconds()
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise lost(f"lost contact with the others (nothing received within the {seconds:.0f} s of FSCIL_TIMEOUT)")
        time.sleep(0.001)


# -- what rank 0 knows -----------------------------------------------------------------------------------------------
def broadcast(function: Callable[[], T]) -> T:
    """Call the function on rank 0 and broadcast its result, or its UserError, to every rank."""
    if is_single_process():
        return function()
    told: list[Any] = [None, None]
    if is_rank_zero():
        try:
            told[0] = function()
        except UserError as error:
            told[1] = str(error)
    with contact():
        dist.broadcast_object_list(told, src=0, device=torch.device("cpu"))
    if told[1] is not None:
        raise UserError(told[1])
    value: T = told[0]
    return value


def broadcast_module(module: nn.Module) -> None:
    """Give all ranks the parameters and buffers of rank 0."""
    if is_single_process():
        return
    for tensor in module.state_dict().values():
        copy = tensor.contiguous()
        with contact():
            dist.broadcast(copy, src=0)
        tensor.copy_(copy)


def all_gather_objects(value: T) -> list[T]:
    """The value of each rank, in order."""
    if is_single_process():
        return [value]
    found: list[Any] = [None] * world_size()
    with contact():
        dist.all_gather_object(found, value)
    return found


def check_agreement(facts: Mapping[str, object]) -> None:
    """Refuse to continue if the ranks differ in something that must be the same."""
    first, *others = all_gather_objects(dict(facts))
    for number, theirs in enumerate(others, 1):
        for name in (*first, *theirs):
            if theirs.get(name) != first.get(name):
                raise UserError(
                    f"process {number} has a different {name} from process 0 ({theirs.get(name)} against "
                    f"{first.get(name)}); all need the same"
                )
