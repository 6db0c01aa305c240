"""FedMGDA+: a step along a common descent direction of the clients.

Hu et al., "Federated Learning Meets Multi-Objective Optimization", IEEE TNSE 2022. With normalised
updates g_k / ||g_k||, lambda minimises ||sum lambda_k g_k / ||g_k|| ||^2 on the simplex, within
epsilon of its centre: epsilon = 0 is the mean of normalised updates, epsilon = 1 is MGDA. This
method needs the updates themselves: weights come from their inner products, so they cannot be
summed blindly, and all of a cohort's updates are held at once.

Departures. Public codes disagree on centre and epsilon: PropFair's has 1/K and 0.2, easyFL's n_k/n
and 0.1; `weights` and `epsilon` choose. A client whose update is zero is left out of the round. The
coefficients are lambda_k / ||g_k||, which do not sum to 1: the lambda_k do.
"""

import jax
import jax.numpy as jnp

from evenly import trees
from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import shares, weights_setting
from evenly.parts.sampling import Full
from evenly.records import leaf, record
from evenly.types import Array, Rule, Signals, Totals, Tree, Weighed

ITERATIONS = 400
BISECTIONS = 40
# of updates that point the same way but for rounding: their weights stay at the centre
SMALLEST_SPREAD = 1e-4


@record
class FedMGDA(Rule):
    """Coefficients that make the sum of the normalised updates as short as possible."""

    epsilon: float = leaf(
        default=0.1,
        least=0,
        most=1,
        doc="largest distance of lambda_k from its centre; 0 keeps the centre, 1 allows any",
    )
    server_rate: float = leaf(default=1.0, above=0, doc="learning rate of the server")
    weights: str = weights_setting("centre of lambda: 'size' (n_k / n) or 'equal' (1 / K)")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"gram", "examples"} if self.counts_sizes else {"gram"})

    @property
    def whole_cohort(self) -> str:
        return "its coefficients follow from the inner products of all updates"

    def weigh_cohort(self, public: Tree, signals: Signals) -> Weighed:
        length = jnp.sqrt(jnp.maximum(jnp.diagonal(signals.gram), 0.0))
        moving = signals.returned & (length > 0)
        inverse = jnp.where(moving, 1.0 / length, 0.0)
        centre = shares(signals.examples if self.counts_sizes else jnp.ones(moving.shape), moving)
        normalised = signals.gram * inverse[:, None] * inverse[None, :]
        return Weighed(shortest(normalised, centre, self.epsilon, moving) * inverse)

    def norm(self, public: Tree, totals: Totals) -> Array:
        return jnp.ones(())

    def step(self, public: Tree, sums: tuple[Tree, ...], totals: Totals) -> tuple[Tree, Tree]:
        return trees.scale(totals.mean, self.server_rate), public


def shortest(gram: Array, centre: Array, epsilon: Array | float, mask: Array) -> Array:
    """argmin of x' gram x over x >= 0, sum x = 1, |x - centre| <= epsilon, by accelerated projected
    gradient. [K]

    Weights always sum to 1, so only differences between clients matter: what all updates have in
    common, which is most of them where clients agree, is taken out of the slope. Otherwise it would
    dictate the step size and nothing would converge.
    """
    clients = jnp.maximum(mask.sum(), 1)
    low, high = (
        jnp.where(mask, jnp.maximum(centre - epsilon, 0.0), 0.0),
        jnp.where(mask, centre + epsilon, 0.0),
    )
    # bounds the curvature among weights of the same sum
    spread = jnp.trace(gram) - gram.sum() / clients
    rate = 1.0 / jnp.maximum(spread, SMALLEST_SPREAD * clients)

    # No restarts: where updates are equal their weights are not unique, and rounding would decide
    # between them.
    def iterate(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        x, ahead = carry
        slope = gram @ ahead
        new = onto_box(
            ahead - rate * jnp.where(mask, slope - slope.sum() / clients, 0.0), low, high
        )
        return new, new + (i / (i + 3.0)) * (new - x)

    start = onto_box(centre, low, high)
    return jax.lax.fori_loop(0, ITERATIONS, iterate, (start, start))[0]


def onto_box(y: Array, low: Array, high: Array) -> Array:
    """The nearest x with low <= x <= high and sum 1: x = clip(y + tau), tau by bisection."""

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = bounds
        middle = (a + b) / 2
        short = jnp.clip(y + middle, low, high).sum() < 1.0
        return jnp.where(short, middle, a), jnp.where(short, b, middle)

    a, b = jax.lax.fori_loop(
        0, BISECTIONS, halve, (jnp.min(low - y) - 1.0, jnp.max(high - y) + 1.0)
    )
    return jnp.clip(y + (a + b) / 2, low, high)


METHOD = Method(
    name="fedmgda",
    title="FedMGDA+",
    reference="Hu et al., Federated Learning Meets Multi-Objective Optimization, IEEE TNSE 2022",
    bibtex="""
@article{hu2022federated,
  author        = {Hu, Zeou and Shaloudegi, Kiarash and Zhang, Guojun and Yu, Yaoliang},
  title         = {Federated Learning Meets Multi-Objective Optimization},
  journal       = {IEEE Transactions on Network Science and Engineering},
  year          = {2022},
  doi           = {10.1109/TNSE.2022.3169117},
  archivePrefix = {arXiv},
  eprint        = {2006.11489}
}""",
    formula="λ = argmin ‖Σ λₖ gₖ/‖gₖ‖‖², |λ − λ⁰| ≤ ε;  w⁺ = w − η Σ λₖ gₖ/‖gₖ‖",
    rule=FedMGDA,
    select=Full(),
    defaults={"weights": ""},
    resolve=follow_sampling,
)
