"""Device-specific q (q-FFL, Appendix): each device keeps the model that does best on its own
validation rows.
"""


def choose(validation_accuracy, qs):
    """For every client the q of the best validation accuracy; ties, and clients without rows
    (None), take the smallest q.
    """
    chosen = []
    for of_client in validation_accuracy:  # one {q: accuracy or None} per client
        best = min(qs)
        for q in sorted(qs):
            if of_client[q] is not None and of_client[q] > of_client[best]:
                best = q
        chosen.append(best)
    return chosen
