"""The part `+dp(...)` of the notation: whose data are protected, how strictly, and within which
bounds.
"""

from typing import TYPE_CHECKING

from evenly.records import is_number, leaf, record, require, static

if TYPE_CHECKING:
    from evenly.types import Algorithm

UNITS = ("client", "row")
ADAPTIVE = "adaptive"
LARGEST_DELTA = 0.01
# settings of one unit, which mean nothing for the other
OF_UNIT = {
    "client": ("weight", "unclipped", "first_clip", "forced", "histogram", "publish"),
    "row": ("rate", "measure_every", "loss_bound", "signal_noise"),
}


@record
class Privacy:
    """Train with differential privacy.

    With `unit=client` the server bounds what each client can move in a round and adds noise to the
    sums, so that the models reveal little about any one client. With `unit=row` each client makes
    what it sends private for its own training rows. Give either `epsilon`, from which the noise
    follows, or `noise_multiplier`.

    Args:
        unit: What is protected: a whole client, or one row.
        epsilon: The most that all rounds of a run may reveal together; smaller is stricter.
        delta: How much probabilities may differ beyond epsilon, at most 0.01. By default at most
            1e-5.
        noise_multiplier: Standard deviation of the noise, as a multiple of what one unit can move.
        clip: Largest length of a client's update, or `adaptive`, which follows the lengths of all.
        weight: Largest weight of a client, as a multiple of an average client's.
        unclipped: Share of the updates that an adaptive clip leaves whole.
        first_clip: Where an adaptive clip starts.
        forced: Whether to train although too few clients take part for a useful model.
        histogram: With `unit=client`, noise of one release of the histogram of client accuracies,
            in clients. It is part of the account. By default nothing is released.
        publish: With `unit=client`, whether reports show figures that are computed without noise.
            Nothing can be claimed then.
        rate: With `unit=row`, the probability of each row to be in each batch. It takes the place
            of the batch size.
        measure_every: With `unit=row`, rounds between two measurements of tables and losses, which
            rules use meanwhile.
        loss_bound: With `unit=row`, the largest loss of a row in the losses that clients report.
        signal_noise: With `unit=row`, deviation of the noise in counts of rows. By default it
            follows from epsilon, or is 20 rows.

    Raises:
        ValueError: If a setting is not legal or belongs to the other unit, or neither epsilon nor
            noise_multiplier is given.

    Example:
        >>> Privacy(epsilon=8).clip, Privacy(noise_multiplier=1, clip=0.5).clip
        ('adaptive', 0.5)
    """

    unit: str = static(
        default="client", choices=UNITS, doc="what is protected: a whole 'client' or a 'row'"
    )
    epsilon: float | None = leaf(
        default=None, above=0, doc="the most that all rounds together may reveal"
    )
    delta: float | None = leaf(
        default=None,
        above=0,
        doc="how much probabilities may differ beyond epsilon; by default at most 1e-5",
    )
    noise_multiplier: float | None = leaf(
        default=None,
        least=0,
        doc="noise as a multiple of what one unit can move; by default it follows from epsilon",
    )
    clip: float | str = leaf(
        default=ADAPTIVE,
        above=0,
        doc="largest length of a client's update, or 'adaptive'; of a row's gradient, 1 by default",
    )
    weight: float = leaf(
        default=3.0, above=0, doc="largest weight of a client, in multiples of an average client's"
    )
    unclipped: float = leaf(
        default=0.8, above=0, below=1, doc="share of the updates that an adaptive clip leaves whole"
    )
    first_clip: float = leaf(default=0.1, above=0, doc="where an adaptive clip starts")
    forced: bool = static(
        default=False, doc="whether to train although too few clients take part in a round"
    )
    histogram: float | None = leaf(
        default=None,
        above=0,
        doc="unit=client: noise of one release of the histogram of client accuracies, in clients",
    )
    publish: bool = static(
        default=False,
        doc="unit=client: whether reports show figures without noise, which voids the promise",
    )

    rate: float = static(
        default=0.02, above=0, most=1, doc="unit=row: probability of a row to be in a batch"
    )
    measure_every: int = static(
        default=10, least=1, doc="unit=row: rounds between two measurements of tables and losses"
    )
    loss_bound: float = leaf(
        default=4.0, above=0, doc="unit=row: largest loss of a row in the losses that are reported"
    )
    signal_noise: float | None = leaf(
        default=None,
        least=0,
        doc="unit=row: deviation of the noise in counts of rows; by default it follows from"
        " epsilon, or is 20",
    )

    def __post_init__(self) -> None:
        require(
            self.epsilon is not None or self.noise_multiplier is not None,
            "give epsilon, such as epsilon=8, or noise_multiplier.",
        )
        require(
            not isinstance(self.clip, str) or self.clip == ADAPTIVE,
            f"clip must be a number above 0 or 'adaptive', got {self.clip!r}.",
        )
        require(
            self.delta is None or not is_number(self.delta) or self.delta <= LARGEST_DELTA,
            f"delta must be at most {LARGEST_DELTA:g}, got {self.delta}. Publishing everything"
            " about one client or row in n has an epsilon of 0 and a delta of 1/n: choose delta far"
            " below 1/n, or leave it out for 1e-5.",
        )
        (other,) = set(UNITS) - {self.unit}
        fields = type(self).__dataclass_fields__
        for name in OF_UNIT[other]:
            value = getattr(self, name)
            require(
                not isinstance(value, bool | int | float) or value == fields[name].default,
                f"{name} is a setting of unit={other}, and this is unit={self.unit}. Leave it out.",
            )

    @property
    def adapts(self) -> bool:
        """Whether the clip follows the lengths of the updates."""
        return self.clip == ADAPTIVE


PRIVACIES: dict[str, type[Privacy]] = {"dp": Privacy}
"""Kinds of privacy by their name in the notation, such as `fedavg+dp(epsilon=8)`.

Example:
    >>> PRIVACIES["dp"](epsilon=8).unit
    'client'
"""


def refuse_both(algorithm: "Algorithm") -> None:
    """Raise ValueError if a method names epsilon and noise, which need not agree.

    In deployments with private rows it may name both: epsilon is then the budget of each client.
    """
    privacy = algorithm.privacy
    require(
        privacy is None or privacy.epsilon is None or privacy.noise_multiplier is None,
        f"{algorithm.label}: give epsilon or noise_multiplier, and not both. The other follows.",
    )
