"""The generalised-mean view of fair federated learning (PropFair, Section 3).

Each method replaces the plain mean of the clients' losses by A_s(f) = s^-1(mean s(f_i)) for some increasing s:

    fedavg    s(t) = t            the mean
    q-ffl     s(t) = t^(q+1)      a power mean
    afl       the maximum
    term      s(t) = exp(alpha t) log-mean-exp
    propfair  s(t) = -log(M - t)  M minus the geometric mean of M - f_i

`dual_weights` are the lambda_i with which the method weighs the clients' gradients; they sum to 1 except PropFair's,
whose product of n lambda_i is 1 (its sum exceeds 1).
"""

import numpy as np

Array = np.ndarray
KINDS = ("fedavg", "q-ffl", "afl", "term", "propfair")


def generalised_mean(losses: Array, kind: str, parameter: float = 0.0) -> float:
    """A_s of non-negative losses; `parameter` is q, alpha or M.

    >>> round(generalised_mean(np.array([0.5, 2.0, 1.0]), "q-ffl", 1.0), 10)
    1.3228756555
    """
    f = _checked(losses, kind, parameter)
    top = f.max()
    if kind == "fedavg" or (kind == "term" and parameter == 0):
        return float(f.mean())
    if kind == "afl":
        return float(top)
    if kind == "q-ffl":  # scaled by the largest, so that no power overflows
        return float(top * np.mean((f / top) ** (parameter + 1)) ** (1 / (parameter + 1))) if top > 0 else 0.0
    if kind == "term":
        return float(top + np.log1p(np.mean(np.expm1(parameter * (f - top)))) / parameter)
    return float(-parameter * np.expm1(np.mean(np.log1p(-f / parameter))))  # M - GM(M - f), without cancelling at large M


def dual_weights(losses: Array, kind: str, parameter: float = 0.0) -> Array:
    """How the method weighs each client's gradient; equally if all losses are 0.

    >>> dual_weights(np.array([0.5, 2.0, 1.0]), "propfair", 5.0).round(4)
    array([0.28 , 0.42 , 0.315])
    """
    f = _checked(losses, kind, parameter)
    if kind == "fedavg" or f.max() == 0:
        raw = np.ones_like(f)
    elif kind == "q-ffl":
        raw = (f / f.max()) ** parameter
    elif kind == "afl":
        raw = (f == f.max()).astype(float)
    elif kind == "term":
        raw = np.exp(parameter * (f - f.max()))
    else:
        return np.exp(np.mean(np.log(parameter - f))) / (parameter - f) / len(f)
    return raw / raw.sum()


def _checked(losses: Array, kind: str, parameter: float) -> Array:
    f = np.asarray(losses, np.float64)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if len(f) == 0 or (f < 0).any() or not np.isfinite(f).all():
        raise ValueError(f"Losses must be finite, at least 0 and at least one, got {losses}.")
    if kind in ("q-ffl", "term") and parameter < 0:
        raise ValueError(f"{kind}: the parameter must be at least 0, got {parameter}.")
    if kind == "propfair" and not f.max() < parameter:
        raise ValueError(f"propfair: M must exceed every loss, got M = {parameter} and a loss of {f.max()}.")
    return f
