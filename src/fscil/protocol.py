"""Drives a method through a benchmark's sessions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from fscil.benchmark import Benchmark
from fscil.images import subset
from fscil.methods import Method

OnSession = Callable[[int, Tensor, Tensor], None]  # session, predictions, labels


def embed_test_images(method: Method, benchmark: Benchmark) -> Tensor | None:
    """Embeddings that serve all sessions and all draws of the shots, if the method's encoder stays as it is."""
    return method.embed(benchmark.test_images) if method.fixed_encoder else None


def run_sessions(
    method: Method, benchmark: Benchmark, on_session: OnSession, embeddings: Tensor | None = None
) -> Tensor:
    """Learn and test one session after another; the base session must have been learned.

    Returns predicted labels [sessions, test images], -1 for images of classes that had not arrived yet. Embeddings of
    the test images are computed here, once, unless they are given.
    """
    predictions = torch.full((len(benchmark.sessions), len(benchmark.test_labels)), -1)
    embeddings = embed_test_images(method, benchmark) if embeddings is None else embeddings
    for i, session in enumerate(benchmark.sessions):
        if i > 0:
            method.learn_session(session)
        seen = benchmark.test_labels < benchmark.seen(i)
        if embeddings is not None:
            logits = method.classify(embeddings[seen])
        else:
            logits = method.logits(subset(benchmark.test_images, seen))
        predictions[i, seen.cpu()] = logits.argmax(1).cpu()
        on_session(i, predictions[i], benchmark.test_labels)
    return predictions


def run_trials(
    method: Method,
    benchmark: Benchmark,
    trials: Iterable[int],
    on_session: OnSession,
    embeddings: Tensor | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """The same trained base model on several draws of the shots: yields (trial, predictions)."""
    embeddings = embed_test_images(method, benchmark) if embeddings is None else embeddings
    base = copy.deepcopy(method.network)
    scope = method.engine.scope
    for trial in trials:
        method.network = copy.deepcopy(base)
        method.engine.scope = f"{scope}trial-{trial}-"
        yield trial, run_sessions(method, benchmark.redrawn(trial), on_session, embeddings)
    method.network, method.engine.scope = base, scope
