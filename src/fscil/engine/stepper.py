"""One optimiser step after another: captured as a CUDA graph on a GPU, plain elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fscil import distributed
from fscil.engine.stage import Stage


class Stepper:
    """Runs a stage's steps. All data of a segment is on the device; a counter there says which step is next."""

    def __init__(self, stage: Stage, device: torch.device, capture: bool) -> None:
        self.stage, self.device = stage, device
        self.on_gpu = device.type == "cuda"
        self.capture = capture and self.on_gpu
        self.graph: torch.cuda.CUDAGraph | None = None
        self.data: dict[str, Tensor] = {}
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.base_lrs = [group.lr for group in stage.groups]
        # the whole schedule at once: copying it to the device in every segment would make the host wait
        factors = [stage.schedule(step) for step in range(stage.segments * stage.steps)]
        self.factors = torch.tensor(factors, dtype=torch.float32, device=device).view(stage.segments, stage.steps)
        # on the GPU the learning rate is a tensor, so that a captured step can change it
        groups = [
            {
                "params": g.parameters,
                "lr": torch.tensor(g.lr, dtype=torch.float32, device=device) if self.on_gpu else g.lr,
            }
            for g in stage.groups
        ]
        self.optimiser = torch.optim.SGD(
            groups,
            momentum=stage.momentum,
            weight_decay=stage.weight_decay,
            nesterov=stage.nesterov and stage.momentum > 0,
            fused=self.on_gpu,
        )

    def run_segment(self, segment: int, data: Mapping[str, Tensor]) -> Tensor:
        """Train on a segment's data; returns the mean loss, still on the device."""
        steps = len(next(iter(data.values())))
        self._load({**data, "_factor": self.factors[segment, :steps].clone()})
        if self.capture and self.graph is None:
            self._capture()
        self.counter.zero_()
        self.loss_sum.zero_()
        for i in range(steps):
            if self.graph is not None:
                self.graph.replay()
            else:
                self._step({name: tensor[i] for name, tensor in self.data.items()})
        return self.loss_sum / steps

    def _load(self, data: dict[str, Tensor]) -> None:
        """A captured graph reads fixed addresses, so later segments are copied over the first one's."""
        if self.graph is None:
            self.data = {name: tensor.contiguous() for name, tensor in data.items()}
            return
        for name, tensor in data.items():
            self.data[name][: len(tensor)].copy_(tensor)  # the last segment may be shorter

    def _step(self, batch: dict[str, Tensor]) -> None:
        factor = batch.pop("_factor")
        for group, lr in zip(self.optimiser.param_groups, self.base_lrs, strict=True):
            if self.on_gpu:
                group["lr"].copy_(factor * lr)
            else:
                group["lr"] = float(factor) * lr
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.stage.loss(batch)
        loss.backward()
        distributed.average_gradients(self._parameters())
        self.optimiser.step()
        self.loss_sum += loss.detach()

    def _counted_step(self) -> None:
        self._step({name: tensor.index_select(0, self.counter)[0] for name, tensor in self.data.items()})
        self.counter += 1

    def _capture(self) -> None:
        """Record one step. Warm-up steps are needed first (lazy buffers, algorithm selection); they are undone."""
        with self._undone():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.counter.zero_()
                    self._counted_step()
            torch.cuda.current_stream().wait_stream(stream)
            self.counter.zero_()
            graph = torch.cuda.CUDAGraph()
            failure = None
            try:
                # other threads may use CUDA meanwhile: NCCL's, and the one that reads photos into pinned memory
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    self._counted_step()
            except RuntimeError as error:
                failure = str(error)
            # all ranks replay, or none: NCCL's collectives must be captured everywhere or nowhere
            if failures := [each for each in distributed.all_gather_objects(failure) if each is not None]:
                warnings.warn(
                    f"{self.stage.name}: the step could not be captured, continuing without capture: {failures[0]}",
                    stacklevel=2,
                )
                self.capture = False
            else:
                self.graph = graph

    @contextmanager
    def _undone(self) -> Any:
        """Restore module, optimiser and random state, in place."""
        seed = torch.initial_seed()
        module = {name: tensor.clone() for name, tensor in self.stage.module.state_dict().items()}
        momentum = {p: state["momentum_buffer"].clone() for p, state in self.optimiser.state.items() if state}
        yield
        self.stage.module.load_state_dict(module)
        for parameter, state in self.optimiser.state.items():
            buffer = state.get("momentum_buffer")
            if buffer is not None and parameter in momentum:
                buffer.copy_(momentum[parameter])
            elif buffer is not None:
                buffer.zero_()  # the first step then computes the same as without a buffer
        torch.manual_seed(seed)  # a resumed run captures in another segment, and must draw the same dropout there

    # -- what a checkpoint holds ---------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        tensors = {f"module.{name}": tensor for name, tensor in self.stage.module.state_dict().items()}
        for i, parameter in enumerate(self._parameters()):
            buffer = self.optimiser.state.get(parameter, {}).get("momentum_buffer")
            if buffer is not None:
                tensors[f"momentum.{i}"] = buffer
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        load_module(self.stage.module, tensors)
        for i, parameter in enumerate(self._parameters()):
            buffer = tensors.get(f"momentum.{i}")
            if buffer is not None:
                # the parameter's own memory layout; otherwise the first step would compute in another order
                self.optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.optimiser.param_groups for p in group["params"]]


def load_module(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    prefix = "module."
    module.load_state_dict({name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)})
