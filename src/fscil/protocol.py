"""Drives a method through a benchmark's sessions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fscil.benchmark import Benchmark
from fscil.methods import Method

OnSession = Callable[[int, Tensor, Tensor], None]  # session, predictions, labels


def run_sessions(method: Method, benchmark: Benchmark, on_session: OnSession) -> Tensor:
    """Learn and test one session after another; the base session must have been learned.

    Returns predicted labels [sessions, test images], -1 for images of classes that had not arrived yet.
    """
    predictions = torch.full((len(benchmark.sessions), len(benchmark.test_labels)), -1)
    embeddings = method.embed(benchmark.test_images) if method.fixed_encoder else None
    for i, session in enumerate(benchmark.sessions):
        if i > 0:
            method.learn_session(session)
        seen = benchmark.test_labels < benchmark.seen(i)
        if embeddings is not None:  # a fixed encoder embeds the test images once for all sessions
            logits = method.classify(embeddings[seen])
        else:
            logits = method.logits(benchmark.test_images[seen])
        predictions[i, seen.cpu()] = logits.argmax(1).cpu()
        on_session(i, predictions[i], benchmark.test_labels)
    return predictions


def run_trials(
    method: Method, draws: Iterator[tuple[int, Benchmark]], on_session: OnSession
) -> Iterator[tuple[int, Tensor]]:
    """The same trained base model on several draws of the shots: yields (trial, predictions)."""
    base = copy.deepcopy(method.network)
    scope = method.engine.scope
    for trial, benchmark in draws:
        method.network = copy.deepcopy(base)
        method.engine.scope = f"{scope}trial-{trial}-"
        yield trial, run_sessions(method, benchmark, on_session)
    method.network, method.engine.scope = base, scope
