"""Your own method: one record that weighs a client, one METHOD that describes it, one line that
registers it.

The weight of a client is proportional to exp(loss / temperature). With a high temperature all
clients count alike; with a low one, only the client with the largest loss counts. Run it with
`python examples/own_method.py`.
"""

import evenly
from evenly.types import Own, Rule, Tree, Weighed, leaf, record


@record
class Urgent(Rule):
    """Weigh a client by the exponential of its loss."""

    temperature: float = leaf(
        default=1.0, above=0, doc="how much a difference in loss matters: less the larger it is"
    )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss"})  # what clients must reveal besides their update

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(1.0, exponent=own.loss / self.temperature)


METHOD = evenly.Method(
    name="urgent", title="Urgent", reference="this example", formula="aₖ ∝ exp(Fₖ / T)", rule=Urgent
)
evenly.register(METHOD)


def main() -> None:
    federation = evenly.synthetic()
    task = evenly.models.Softmax(features=60, classes=10)
    print(f"{'method':24} {'average':>8} {'worst 10 %':>11} {'variance':>9}")
    methods = ["fedavg", "urgent(temperature=1)", "urgent(temperature=0.5)"]
    algorithms = [evenly.algorithm(text, learning_rate=0.01) for text in methods]
    for text, trace in zip(
        methods, evenly.train(task, federation, algorithms, rounds=500), strict=True
    ):
        metrics = evenly.final_metrics(trace, "test")
        print(
            f"{text:24} {metrics['average']:8.1f} {metrics['worst10']:11.1f}"
            f" {metrics['variance']:9.0f}"
        )


if __name__ == "__main__":
    main()
