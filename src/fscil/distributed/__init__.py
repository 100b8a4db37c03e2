"""Several processes under torchrun, on one machine or many: how they start and exit, and what they exchange.

In a single process every function here returns its input.
"""

from __future__ import annotations

from fscil.distributed.collectives import (
    all_gather,
    all_gather_objects,
    all_gather_shards,
    all_reduce,
    average_gradients,
    broadcast,
    broadcast_module,
    check_agreement,
    check_step_size,
    map_shards,
    poll,
    shard,
    wait_for,
)
from fscil.distributed.launch import (
    exit_process,
    initialise,
    is_rank_zero,
    is_reporter,
    is_single_process,
    print_on_rank_zero_only,
    rank,
    select_gpu,
    shut_down,
    timeout,
    world_size,
)

__all__ = [
    "all_gather", "all_gather_objects", "all_gather_shards", "all_reduce", "average_gradients", "broadcast",
    "broadcast_module", "check_agreement", "check_step_size", "exit_process", "initialise", "is_rank_zero",
    "is_reporter", "is_single_process", "map_shards", "poll", "print_on_rank_zero_only", "rank", "select_gpu", "shard",
    "shut_down", "timeout", "wait_for", "world_size",
]  # fmt: skip
