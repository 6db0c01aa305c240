"""What each method asks of Flower's clients, read from the methods themselves."""

from evenly.algorithms import METHODS, Method
from evenly.flower import wire
from evenly.flower.roster import algorithm_of, grows, reads_census
from evenly.flower.two_phase import require_possible
from evenly.types import Algorithm, RowRule, Several

HEAD = "| method | metrics in the reply, besides `num-examples` | census | what else is different | clients may join later | two phases |"


def part() -> str:
    rows = [_row(method) for method in METHODS.values()]
    return "\n".join([HEAD, "| --- | --- | --- | --- | --- | --- |", *rows])


def _row(method: Method) -> str:
    text = f"{method.name}(q=1)" if method.combine else method.example or method.name
    made = algorithm_of(text)
    needed = [f"`{wire.SIGNALS[need]}`" for need in sorted(made.rule.needs & wire.SIGNALS.keys())]
    asks = "yes" if reads_census(made) else "no"
    joins = "yes" if grows(made.rule) and asks == "no" and not isinstance(made.rule, Several) else "no"
    cells = [f"[{method.title}](algorithms/{method.name}.md)", ", ".join(needed) or "none", asks, _else(method, made), joins, _sums(made)]
    return "| " + " | ".join(cells) + " |"


def _else(method: Method, made: Algorithm) -> str:
    """Whatever is not a model up, a model down."""
    rule = made.rule
    told = ["one strategy for each member"] if method.combine else []
    if made.network is not None:
        told.append("arrays are the places of edges, whole numbers")
    if isinstance(rule, Several):
        told.append(
            "clients receive several models, choose one and train it"
            if rule.apart
            else "clients belong to groups, and use their group's model"
        )
    if isinstance(rule, RowRule):
        told.append("clients are told `row-weights`")
    if "gram" in rule.needs:
        told.append("the server looks at every update")
    if getattr(made.work, "remember", lambda model: None)(1.0) is not None:
        told.append("clients keep a model of their own")
    return "; ".join(told)


def _sums(made: Algorithm) -> str:
    """Whether the sum of updates is enough, and what clients say beside it."""
    try:
        require_possible(made, None)
    except ValueError:
        return "no"
    return f"yes; `{wire.SQUARE_NORM}`" if "square_norm" in made.rule.needs else "yes"
