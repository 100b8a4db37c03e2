"""The paper's appendix A in plain loops and float64, to compare the real calibrator with."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fscil.calibrators import Transformer

Array = NDArray[np.float64]


def weights_of(calibrator: Transformer) -> dict[str, Array]:
    return {name: tensor.detach().cpu().double().numpy() for name, tensor in calibrator.state_dict().items()}


def calibrate(weights: dict[str, Array], rows: Array, query: Array) -> tuple[Array, Array]:
    """Classifier rows [C, d] and ONE query [d] -> W~ [C, d], phi~(x) [d]"""
    tokens = [*rows, query]  # Q = K = V = [W^, phi(x)]
    d = len(query)
    keys = [weights["W_K.weight"] @ token for token in tokens]
    values = [weights["W_V.weight"] @ token for token in tokens]
    calibrated = []
    for token in tokens:
        projected = weights["W_Q.weight"] @ token
        scores = [float(projected @ key) / math.sqrt(d) for key in keys]
        similarities = [math.exp(score - max(scores)) for score in scores]
        alpha = [similarity / sum(similarities) for similarity in similarities]
        attended = sum(a * value for a, value in zip(alpha, values, strict=True))
        x = token + weights["W_FC.weight"] @ attended + weights["W_FC.bias"]
        centred = x - x.mean()
        normalised = centred / np.sqrt((centred**2).mean() + 1e-5)
        calibrated.append(normalised * weights["layer_norm.weight"] + weights["layer_norm.bias"])
    return np.stack(calibrated[:-1]), calibrated[-1]


def logits(
    weights: dict[str, Array], rows: Array, query: Array, *, cosine: bool, scale: float, query_length: bool = False
) -> Array:
    """[C]: scale times inner product, or cosine, of the calibrated query with every calibrated row

    With query_length cosines are multiplied by that of the calibrated query.
    """
    rows, query = calibrate(weights, rows, query)
    found = []
    for row in rows:
        product = float(row @ query)
        if cosine:
            product /= float(np.linalg.norm(row)) * (1.0 if query_length else float(np.linalg.norm(query)))
        found.append(scale * product)
    return np.array(found)
