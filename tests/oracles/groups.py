"""Group-fair methods line by line, in NumPy float64, with loops over clients and people's groups.

`tables` are counts [clients, groups, labels, outcomes]; `low` are the unprivileged groups, `good`
the favourable label.
"""

import numpy as np


def rate(table, groups, metric, good):
    """Of the people in these groups: true positive rate, share given the favourable label, or
    accuracy; None of nobody.
    """
    hits = people = 0.0
    for g in groups:
        for label in range(table.shape[1]):
            for outcome in range(table.shape[2]):
                count = table[g, label, outcome]
                if metric == "eod" and label != good:
                    continue
                people += count
                hits += count if outcome == (label if metric == "accuracy" else good) else 0
    return hits / people if people else None


def gap(table, metric, low, good):
    """phi: the unprivileged minus the others; None where one of them is nobody."""
    high = [g for g in range(len(table)) if g not in low]
    one, other = rate(table, low, metric, good), rate(table, high, metric, good)
    return None if one is None or other is None else one - other


def distances(tables, metric, low, good):
    """FairFed: each client's distance from everyone, and how many of them are of accuracy."""
    everyone = sum(tables)
    whole, all_right = (
        gap(everyone, metric, low, good),
        rate(everyone, range(len(everyone)), "accuracy", good),
    )
    delta, fallbacks = [], 0
    for table in tables:
        own = gap(table, metric, low, good)
        if whole is None or own is None:
            delta.append(abs(all_right - rate(table, range(len(table)), "accuracy", good)))
            fallbacks += 1
        else:
            delta.append(abs(whole - own))
    return np.array(delta), fallbacks


def held_out_distances(tables, metric, low, good):
    """The same on validation rows, of which a client may have none: it is as far from everyone as
    those are on average.
    """
    there = [k for k, table in enumerate(tables) if table.sum() > 0]
    delta = np.zeros(len(tables))
    if not there:
        return delta, 0
    delta[there], fallbacks = distances([tables[k] for k in there], metric, low, good)
    delta[[k for k in range(len(tables)) if k not in there]] = np.mean(delta[there])
    return delta, fallbacks


def fairfed(raw, delta, n, beta, clamp=True):
    """v_k <- max(0, v_k - beta (D_k - mean D)); a_k = v_k / sum v; sizes if nothing is left."""
    moved = np.array([v - beta * (d - np.mean(delta)) for v, d in zip(raw, delta, strict=True)])
    moved = np.maximum(moved, 0) if clamp else moved
    return (moved / moved.sum() if moved.sum() > 0 else np.asarray(n) / np.sum(n)), moved


def fairfed_exponential(delta, n, beta):
    raw = np.asarray(n) * np.exp(-beta * np.asarray(delta))
    return raw / raw.sum()


def fedcvg(n, u, alpha, coverage):
    """a_k proportional to n_k exp(alpha (u_k - cov)), as printed."""
    raw = np.asarray(n, np.float64) * np.exp(alpha * (np.asarray(u, np.float64) - coverage))
    return raw / raw.sum()


def ratio_scores(n, u, alpha):
    """s_k of FedCvg-Ratio."""
    n, u = np.asarray(n, np.float64), np.asarray(u, np.float64)
    r, scores = u.sum() / n.sum(), []
    for k in range(len(n)):
        delta = (u[k] / n[k] - r) / min(r, 1 - r) if 0 < r < 1 else 0.0
        scores.append(min(max(1 + alpha * delta if r < 0.5 else 1 - alpha * delta, 0.5), 2.0))
    return np.array(scores)


def ratio_weights(n, u, alpha):
    raw = np.asarray(n, np.float64) * ratio_scores(n, u, alpha)
    return raw / raw.sum()


def moving_average(weights, seen, now, memory):
    """w_k <- lambda w_k + (1 - lambda) now_k if the client was seen before, else now_k."""
    return np.array(
        [
            memory * w + (1 - memory) * z if known else z
            for w, known, z in zip(weights, seen, now, strict=True)
        ]
    )


def line_42(weights, trained):
    """FedCvg-Ratio as printed: theta <- sum_i w_i theta_i, whatever the w_i sum to."""
    return sum(w * own for w, own in zip(weights, trained, strict=True))


def fedfb_lambdas(lambdas, m, losses, alpha, t):
    """FedFB for demographic parity and two groups, as its authors write it; everything is indexed
    [label, group].

    The constant is added once (their code adds it once per client), and each group is clipped by
    its own mass.
    """
    mass, n = m.sum(0), m.sum()
    f = (
        (losses[1, 0] - losses[0, 0]) / mass[0]
        + (losses[0, 1] - losses[1, 1]) / mass[1]
        + m[0, 0] / mass[0]
        - m[0, 1] / mass[1]
    )
    step = alpha / np.sqrt(t)
    new = lambdas.copy()
    new[0, 0] -= step * f
    new[0, 1] += step * f
    for z in (0, 1):
        new[0, z] = min(max(new[0, z], 0.0), 2 * mass[z] / n)
        new[1, z] = 2 * mass[z] / n - new[0, z]
    return new


def reweighing(y, group):
    """Kamiran and Calders: W(a, y) = P(a) P(y) / P(a, y), row by row."""
    y, group, n = np.asarray(y), np.asarray(group), len(y)
    return np.array(
        [
            (np.sum(group == group[i]) / n)
            * (np.sum(y == y[i]) / n)
            / (np.sum((group == group[i]) & (y == y[i])) / n)
            for i in range(n)
        ]
    )


def parity_choice(n, u, observed, slots):
    """Whom parity sampling would take of those observed, best first, and their score; None where
    both sides were seen equally.
    """
    low = sum(u[k] for k in observed)
    high = sum(n[k] - u[k] for k in observed)
    if low == high:
        return None
    score = {k: n[k] - u[k] if low > high else u[k] for k in observed}
    return sorted(observed, key=lambda k: -score[k])[:slots]
