"""Watches the sizes of all tensors that are created."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorSizes(TorchDispatchMode):
    """Inside `with TensorSizes() as sizes`, what every operation returns is noted: sizes.seen maps shape -> numel."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[int, ...], int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        self.seen |= {tuple(t.shape): t.numel() for t in tree_leaves(made) if isinstance(t, torch.Tensor)}
        return made

    @property
    def largest(self) -> int:
        return max(self.seen.values())
