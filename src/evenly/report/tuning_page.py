"""The page of a search: what was chosen and why, the front, how each setting matters, and all
trials.
"""

from pathlib import Path
from typing import Any

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.folder import CHOSEN, Store, finish, write_results
from evenly.experiment.promises import privacy_record
from evenly.experiment.tuning import Tuning, spent_by_search, withholds_trials, write_trials
from evenly.experiment.tuning_space import SAMPLERS
from evenly.metrics import EVERY_METRIC, Metric, spread
from evenly.metrics.statistics import is_clear
from evenly.privacy.claims import claim_words
from evenly.report.charts.focus import choose_focus
from evenly.report.charts.trials import (
    TuningView,
    count_outside,
    cut_off,
    margin_in,
    pairs_of_aims,
    tuning_front,
    tuning_setting,
    view_of,
)
from evenly.report.group_values import with_groups
from evenly.report.html import (
    ChartFigure,
    Column,
    Entry,
    Html,
    breakable,
    command_html,
    contents,
    definitions,
    details,
    document,
    element,
    figure_html,
    grid,
    join,
    legend_of,
    nonbreaking,
    paragraph,
    section,
    sentence_case,
)
from evenly.report.method_table import key_of, method_table
from evenly.report.page import write_report
from evenly.report.tuning_trials import (
    MOST,
    Trials,
    aims_of,
    every_method,
    kinds_of,
    margin_text,
    marks_words,
    trials_table,
)
from evenly.report.values import (
    SPLIT_WORDS,
    capitalise,
    client_split,
    defined_metrics,
    final_values,
    format_value,
    headline,
    means_words,
    over_seeds,
    spread_words,
    table_of,
)
from evenly.report.worst_served import WHERE, sentences, whom_of, whom_table
from evenly.writing import write_whole

CONTENTS = {
    "front": "The front",
    "by-setting": "Settings",
    "test": "On test rows",
    "trials": "Trials",
    "how": "How it was done",
}

CLIENTS, GROUPS = ("average", "worst10", "variance"), ("eod_abs", "spd_abs")
UNITS = "Accuracies in percent, variances in percent squared. "


def write_tuning(tuning: Tuning, folder: Path) -> list[dict[str, Any]]:
    """Write the trials, the results of the chosen settings and both pages. Returns the rows of the
    results.
    """
    write_trials(tuning, folder)
    plan = tuning.plan.final(tuning.choice.chosen, tuning.final.privacy)
    rows = write_results(Store(folder / CHOSEN, plan), tuning.final)
    write_report(tuning.final, folder / CHOSEN / "report.html")
    finish(folder / CHOSEN, privacy_record(tuning.final))
    write_tuning_report(tuning, folder / "report.html", f"{CHOSEN}/report.html")
    finish(folder)
    return rows


def write_tuning_report(tuning: Tuning, path: Path, results: str) -> Path:
    """Write the page. `results` is the relative path of the report on the chosen settings."""
    text = render_tuning(tuning, results)
    return write_whole(path, lambda file: file.write(text.encode()))


def render_tuning(tuning: Tuning, results: str) -> str:
    """The page as text. `results` is the relative path of the report on the chosen settings.

    Where figures without noise are withheld, it says what was chosen and what the search spent.
    """
    if withholds_trials(tuning):
        return _withheld(tuning)
    several = len(every_method(tuning)) > 1
    pairs = pairs_of_aims(tuning) if several else []
    fronts = [_front(tuning, view_of(tuning, x, y)) for x, y in pairs]
    settings = [
        _setting(tuning, name, aim)
        for aim in tuning.plan.objectives
        for name in tuning.plan.space.dimensions
    ]
    front = {"front": _figures("front", _front_title(tuning), tuning, fronts, len(fronts))}
    sections = {
        **(front if fronts else {}),
        "by-setting": _figures(
            "by-setting",
            "How does each setting matter?",
            tuning,
            settings,
            len(tuning.plan.space.dimensions),
        ),
        "test": _test(tuning, results),
        "trials": _trials(tuning),
        "how": _how(tuning),
    }
    data = tuning.final.federation.name
    title = (
        f"{capitalise(data)}: which settings of {tuning.plan.space.composition[0].name} are best?"
    )
    body = [
        _opening(tuning, title),
        contents({key: CONTENTS[key] for key in sections}),
        *sections.values(),
    ]
    return document(
        title, join(body), {figure.identifier: figure.spec for figure in (*fronts, *settings)}
    )


WITHHELD = (
    "Figures of trials are computed from the clients' validation rows without noise and are"
    " withheld from this page. tuning.csv and study.db hold them, for whoever searched."
)
NOT_COVERED = (
    "It covers the models of all trials, against whom and under the assumption that the report of"
    " the choice states. It does not cover the choice, which was made by exact figures of"
    " validation rows."
)


def _withheld(tuning: Tuning) -> str:
    title = f"{capitalise(tuning.final.federation.name)}: what a private search chose"
    header = element(
        "header",
        None,
        element("h1", None, breakable(title)),
        paragraph(f"Chosen: {tuning.chosen.label}.", "lead"),
        paragraph(WITHHELD),
    )
    return document(title, join([header, _how(tuning)]), {})


def _spent_words(tuning: Tuning) -> str:
    """What all trials spend together; empty if none is private."""
    known = spent_by_search(tuning)
    if known is None:
        return ""
    return f"{claim_words(known)}. {NOT_COVERED}" if not known["no_claim"] else claim_words(known)


def _opening(tuning: Tuning, title: str) -> Html:
    """What was chosen, whom it serves worst, and why it was chosen."""
    return element(
        "header",
        None,
        element("p", {"class": "kicker"}, f"evenly tune · {tuning.final.federation.name}"),
        element("h1", None, breakable(title)),
        paragraph(finding(tuning), "lead"),
        *_whom(tuning),
        *(paragraph(text, "soft") for text in reasons(tuning)),
    )


def _whom(tuning: Tuning) -> list[Html]:
    """Whom the chosen settings serve worst, and the trivial model; nothing without rows."""
    split = client_split(tuning.final)
    values = final_values(tuning.final, split)
    whom = whom_of(tuning.final, values, choose_focus(tuning.final, values))
    if whom is None:
        return []
    where = WHERE[CENTRAL if headline(values) == CENTRAL else split].strip()
    text = f"{capitalise(where)}, {' '.join(sentences(whom))}"
    return [paragraph(text, "next"), whom_table(whom)]


def finding(tuning: Tuning) -> str:
    """The chosen settings and their metrics, in a sentence."""
    chosen, baseline = tuning.chosen, tuning.baseline
    if chosen.label == baseline.label:
        return f"The baseline {baseline.label} is kept: no admissible setting is better."
    told = [
        _instead(EVERY_METRIC[name], chosen.means[name], baseline.means[name])
        for name in aims_of(tuning)
    ]
    return (
        f"Chosen: {chosen.label}. On validation rows, beside {baseline.label}: {', '.join(told)}."
    )


def reasons(tuning: Tuning) -> list[str]:
    """Why these settings were chosen, whether that may be chance, and how they do on test rows."""
    return list(filter(None, (rule(tuning), caution(tuning), _tested(tuning))))


def _tested(tuning: Tuning) -> str:
    """The metrics of the choice on test rows, which chance did not favour; empty without test rows
    or if the baseline is kept.
    """
    split = client_split(tuning.final)
    chosen, baseline = tuning.chosen.label, tuning.baseline.label
    if split != "test" or chosen == baseline:
        return ""
    values = with_groups(tuning.final, final_values(tuning.final, split))
    told = [
        _instead(
            EVERY_METRIC[name],
            over_seeds(values, chosen, name).mean,
            over_seeds(values, baseline, name).mean,
        )
        for name in aims_of(tuning)
    ]
    return f"On test rows, beside {baseline}: {', '.join(told)}."


def _instead(metric: Metric, chosen: float, baseline: float) -> str:
    return (
        f"{metric.title} {format_value(chosen, metric)} instead of {format_value(baseline, metric)}"
    )


def rule(tuning: Tuning) -> str:
    """Why these settings were chosen."""
    plan, choice = tuning.plan, tuning.choice
    names, kept = (
        " and ".join(_aim(name) for name in plan.objectives),
        EVERY_METRIC[plan.keep].title,
    )
    allowed, trials = (
        sum(choice.allowed[tried.label] for tried in tuning.trials),
        len(tuning.trials),
    )
    among = f"the baseline and all {trials} settings"
    if plan.within is not None:
        among = (
            f"the baseline and the {allowed} of {trials} settings whose {kept} stays within"
            f" {margin_text(plan)} of the baseline's"
        )
    if plan.within is not None and not allowed:
        return (
            f"None of the {trials} settings keeps {kept} within {margin_text(plan)} of the"
            " baseline's. Test rows were not used for the choice."
        )
    if len(plan.objectives) == 1:
        return (
            f"This is the {names} among {among}. {_tie(tuning)}Test rows were not used for the"
            " choice."
        )
    balanced = (
        f"The front trades {names} against each other. The choice is its most balanced point among"
        f" {among}: the one nearest to the"
    )
    return (
        f"{balanced} best of each, on scales from the worst to the best of front and baseline. Test"
        " rows were not used."
    )


def _tie(tuning: Tuning) -> str:
    """How many settings are equally good, if several are."""
    (aim,), chosen = tuning.plan.objectives, tuning.chosen
    alike = sum(
        tuning.choice.allowed[t.label] and t.means[aim] == chosen.means[aim]
        for t in every_method(tuning).values()
    )
    return f"{alike} of these are equally good; the first of them is taken. " if alike > 1 else ""


def caution(tuning: Tuning) -> str:
    """Whether the improvement may be chance; empty if the baseline is kept or every change is clear
    over seeds.
    """
    chosen, baseline = tuning.chosen, tuning.baseline
    if chosen.label == baseline.label:
        return ""
    if len(tuning.plan.shared.seeds) < 2:
        return "Only one seed was tried, so the effect of chance is unknown."
    changes = {
        name: spread(np.subtract(chosen.values[name], baseline.values[name]))
        for name in tuning.plan.objectives
    }
    unclear = [EVERY_METRIC[name].title for name, change in changes.items() if not is_clear(change)]
    if not unclear:
        return ""
    return (
        f"Over these seeds the change of {' and '.join(unclear)} is not clear: compared seed by"
        " seed, it may be chance."
    )


def _aim(name: str) -> str:
    metric = EVERY_METRIC[name]
    return f"{'highest' if metric.better > 0 else 'least'} {metric.title}"


def _front_title(tuning: Tuning) -> str:
    return "What does it cost?" if len(tuning.plan.objectives) == 1 else "What can be had together?"


def _front(tuning: Tuning, view: TuningView) -> ChartFigure:
    every = every_method(tuning).values()
    outside = sum(not view.holds(tried) for tried in every)
    caption = (
        "The solid line joins the settings that no other beats in both. "
        if len(aims_of(tuning)) == 2
        else ""
    )
    if margin_in(tuning, view) is not None:
        caption += "The margin ends at the dashed line. "
    if len(tuning.plan.shared.seeds) > 1:
        caption += "Thin lines reach from the lowest seed to the highest. "
        caption += "One that ends at the frame goes on beyond it. " if cut_off(tuning, view) else ""
    caption += f"{outside} of {len(every)} lie too far away to be drawn. " if outside else ""
    return ChartFigure(
        f"chart-front-{view.x}-{view.y}",
        tuning_front(tuning, view),
        f"{caption}Point at a mark for its settings.",
    )


def _setting(tuning: Tuning, setting: str, aim: str) -> ChartFigure:
    outside = count_outside(tuning, aim)
    beyond = f" {outside} of {len(tuning.trials)} lie too far away to be drawn." if outside else ""
    caption = f"The dashed line is the baseline, {tuning.baseline.label}.{beyond}"
    return ChartFigure(
        f"chart-{aim}-by-{setting.replace('.', '-')}", tuning_setting(tuning, setting, aim), caption
    )


def _figures(key: str, title: str, tuning: Tuning, figures: list[ChartFigure], beside: int) -> Html:
    body = element("div", {"class": f"figures of-{min(beside, 3)}"}, *map(figure_html, figures))
    means = means_words(len(tuning.plan.shared.seeds))
    note = element(
        "p",
        {"class": "soft"},
        f"Validation rows{means}; one mark for each setting that was tried.",
    )
    return section(key, title, note, legend_of(kinds_of(tuning), others=False), body)


def _test(tuning: Tuning, results: str) -> Html:
    """The results table of the chosen settings and the baseline, and a link to their report."""
    split, groups = client_split(tuning.final), len(tuning.final.federation.groups) > 1
    values = final_values(tuning.final, split)
    values = with_groups(tuning.final, values) if groups else values
    shown = dict.fromkeys((headline(values), *CLIENTS, *(GROUPS if groups else ())))
    found = table_of(values, metrics=defined_metrics(values, tuple(shown)), split=split)
    words = (
        "The chosen settings and the baseline, trained again on the same seeds. Test rows are read"
        " only here, and only for these two."
    )
    if split == "valid":
        words += (
            " No client has test rows of its own: figures on clients use the validation rows that"
            " were also used for the choice."
        )
    caption = f"After {tuning.final.rounds:,} rounds; clients on their {SPLIT_WORDS[split]} rows."
    link = element(
        "p",
        None,
        element("a", {"href": results}, "The whole report of these methods"),
        ": clients, groups, rounds, influence.",
    )
    return section(
        "test",
        "On test rows",
        element("p", None, words),
        method_table(found, caption),
        key_of(found, UNITS),
        link,
    )


def _trials(tuning: Tuning) -> Html:
    some, every = trials_table(tuning, most=MOST), trials_table(tuning)
    words = capitalise(spread_words(len(tuning.plan.shared.seeds)))
    parts = [_grid(some, f"On validation rows. {words}. {marks_words(tuning, some)}".strip())]
    if len(every.lines) > len(some.lines):
        parts.append(
            details(
                f"All {len(tuning.trials)} trials",
                _grid(every, "Every trial. The same is in tuning.csv."),
            )
        )
    return section("trials", "Trials", *parts)


def _grid(trials: Trials, caption: str) -> Html:
    columns = [
        Column("Trial"),
        *(Column(name) for name in trials.settings),
        *(Column(sentence_case(m.title), m.direction) for m in trials.metrics),
    ]
    rows = []
    for line in trials.lines:
        kind = "picked" if "chosen" in line.marks else ""
        rows.append(
            [
                line.name,
                *line.settings,
                *(Entry(cell, kind) for cell in line.cells),
                ", ".join(line.marks),
            ]
        )
    return grid(nonbreaking(caption), [*columns, Column("", words=True)], rows, kind="compact")


def _batches(tuning: Tuning) -> str:
    batch = tuning.plan.batch
    return "all together" if len(tuning.trials) <= batch else f"{batch} at a time"


def _how(tuning: Tuning) -> Html:
    plan = tuning.plan
    facts = [
        ("Searched", plan.method),
        ("Objectives", ", ".join(_aim(name) for name in plan.objectives)),
        ("Baseline", plan.baseline),
        ("Proposed by", f"{SAMPLERS[plan.sampler]}, {_batches(tuning)}"),
        ("Trials", f"{len(tuning.trials):,}"),
        *([("All trials spend", words)] if (words := _spent_words(tuning)) else []),
        ("Rounds", f"{plan.shared.rounds:,}"),
        ("Seeds", ", ".join(map(str, plan.shared.seeds))),
        ("Sampling, unless a method says otherwise", plan.shared.sampling),
        *([("Sizes of clients", tuning.final.sizes)] if tuning.final.sizes else []),
        ("Model", tuning.final.model),
        (
            "Versions",
            ", ".join(f"{name} {version}" for name, version in tuning.final.versions.items()),
        ),
    ]
    shown = command_html("The command", tuning.final.command)
    return section("how", "How it was done", definitions(facts), *shown)
