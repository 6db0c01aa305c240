"""What a user writes in Python: names are there, examples hold, arguments have many forms, and
others are answered with a sentence.
"""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest

import evenly
import evenly.types
from evenly.algorithms import METHODS
from evenly.algorithms.fedavg import METHOD
from evenly.catalogue import methods_table, reveals
from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.parts.sampling import Full
from evenly.simulate import simulate
from evenly.types import Trace
from tests.tunings import DATA, Trainer

SOURCE = Path(evenly.__file__).parent
PACKAGES = [
    "evenly",
    *(f"evenly.{module.name}" for module in pkgutil.iter_modules(evenly.__path__) if module.ispkg),
]
WITH_EXAMPLES = [
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text() and path.parent.name != "metrics" and path.name != "__init__.py"
]
TRAINING = {  # examples that train several models
    "evenly.api.experiments",
    "evenly.api.results",
    "evenly.api.search",
    "evenly.api.study_results",
    "evenly.privacy.claims",
}
PUBLIC = [
    ("evenly", name)
    for name in (
        "algorithm",
        "cite",
        "describe",
        "from_trace",
        "load",
        "register",
        "save",
        "variants",
    )
] + [
    (package.__name__, name)
    for package in (evenly.types, evenly.models, evenly.parts)
    for name in package.__all__
    if getattr(getattr(package, name), "__module__", "").startswith("evenly.")
]


@pytest.mark.parametrize("name", PACKAGES)
def test_code_in_the_docstring_of_a_package_is_an_example_that_holds(name: str):
    module = importlib.import_module(name)
    code = re.findall(
        r"^(?!>>> )\(?\w.*\)? = \w+.*\(.*$|^import \w+$", module.__doc__ or "", re.MULTILINE
    )
    assert not code, "write it as an example, so that it is tried"
    for called in re.findall(r"`(\w+)\(", module.__doc__ or ""):
        assert hasattr(module, called), f"{name} has no {called}"
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.further] * (name in TRAINING))
        for name in WITH_EXAMPLES
    ],
)
def test_examples_of_modules_hold(name: str):
    found = doctest.testmod(importlib.import_module(name), extraglobs={"evenly": evenly})
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("module, name", PUBLIC)
def test_public_names_document_their_parameters(module: str, name: str):
    public = getattr(importlib.import_module(module), name)
    text = inspect.getdoc(public) or ""
    assert text.endswith((".", "]", ")", "'")) or ">>> " in text, "a docstring of whole sentences"
    if inspect.isfunction(public):
        takes = [each for each in inspect.signature(public).parameters if each != "self"]
        assert not takes or all(f"    {each}:" in text.replace("*", "") for each in takes), (
            "Args names every parameter"
        )
        returns = inspect.signature(public).return_annotation not in (None, "None")
        assert not returns or "Returns:" in text


@pytest.mark.parametrize("name", [*evenly.__all__, "flower", "types"])
def test_every_name_is_there_after_a_fresh_import(name: str, monkeypatch: pytest.MonkeyPatch):
    """Importing a module somewhere else leaves its name in the package; that must not be what makes
    it work.
    """
    monkeypatch.delitem(vars(evenly), name, raising=False)
    assert getattr(evenly, name) is not None
    assert name in dir(evenly)


LAZY = """
import sys, evenly
assert not {"jax", "numpy", "flwr", "evenly.types"} & set(sys.modules)
assert evenly.types.Seeds is evenly.Seeds
from evenly import *
assert "evenly.flower" not in sys.modules
sys.modules["flwr"] = None  # as if it were not installed
try:
    evenly.flower
except ImportError as error:
    print(error)
"""


def test_flower_is_there_if_it_is_installed_and_slows_no_import():
    ended = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert 'Install it with: pip install "evenly[flower]"' in ended.stdout


def test_the_hint_at_variants_works_as_told(
    tiny: Federation, task: Softmax, monkeypatch: pytest.MonkeyPatch
):
    text = "q-fedavg(q=[0, 1])"
    with pytest.raises(
        ValueError,
        match=(
            r"evenly\.variants\('q-fedavg\(q=\[0, 1\]\)'\) has one entry for each, and"
            r" evenly\.train takes those"
        ),
    ):
        evenly.algorithm(text)
    monkeypatch.setattr("evenly.simulate.train.simulate", labels)
    expected = ["q-fedavg(q=0)", "q-fedavg(q=1)"]
    assert [variant.label for variant in evenly.variants(text)] == expected
    assert (
        evenly.train(task, tiny, evenly.variants(text), 2)
        == evenly.train(task, tiny, text, 2)
        == expected
    )


def labels(task: Any, federation: Any, algorithms: Any, rounds: int, **options: Any) -> list[Any]:
    """In place of training: each algorithm's label."""
    if options["progress"]:
        options["progress"](rounds, rounds)
    return [algorithm.label for algorithm in algorithms]


def test_different_methods_are_grouped_and_come_back_in_order(
    tiny: Federation, task: Softmax, monkeypatch: pytest.MonkeyPatch
):
    programs: list[tuple[list[str], Any]] = []

    def run(task: Any, federation: Any, algorithms: Any, rounds: int, **options: Any) -> list[Any]:
        programs.append(([algorithm.label for algorithm in algorithms], options["checkpoint"]))
        return labels(task, federation, algorithms, rounds, **options)

    monkeypatch.setattr("evenly.simulate.train.simulate", run)
    told: list[tuple[int, int]] = []
    given = [
        evenly.algorithm("fedavg"),
        "ditto",
        "q-fedavg(q=[1, 2])",
        evenly.algorithm("ditto(pull=2)"),
    ]
    found = evenly.train(
        task,
        tiny,
        given,
        5,
        progress=lambda done, of: told.append((done, of)),
        checkpoint=Path("kept.npz"),
    )
    assert found == ["fedavg", "ditto", "q-fedavg(q=1)", "q-fedavg(q=2)", "ditto(pull=2)"]
    assert programs == [
        (["fedavg", "q-fedavg(q=1)", "q-fedavg(q=2)"], Path("kept-0.npz")),
        (["ditto", "ditto(pull=2)"], Path("kept-1.npz")),
    ]
    assert told == [(5, 10), (10, 10)]
    with pytest.raises(
        ValueError, match="observe needs algorithms that share one program, but these need 2"
    ):
        evenly.train(task, tiny, given, 5, observe=lambda traces: None)


def test_a_run_by_notation_has_the_bits_of_one_by_hand(tiny: Federation, task: Softmax):
    (by_hand,) = simulate(
        task, tiny, [evenly.algorithm("q-fedavg(q=1)")], rounds=2, seeds=evenly.Seeds.all(3)
    )
    for given in ("q-fedavg(q=1)", evenly.algorithm("q-fedavg(q=1)"), ["q-fedavg(q=1)"]):
        (found,) = evenly.train(task, tiny, given, 2, seeds=3)
        np.testing.assert_array_equal(found.tables, by_hand.tables)


def test_a_method_of_several_models_has_one_trace(
    tiny: Federation, task: Softmax, monkeypatch: pytest.MonkeyPatch, some_trace: Trace
):
    monkeypatch.setattr(
        "evenly.simulate.train.simulate",
        lambda task, federation, algorithms, *_, **__: [some_trace] * len(algorithms),
    )
    assert len(evenly.variants("multi-q(q=[0, 1])")[0].members) == 2
    (found,) = evenly.train(task, tiny, "multi-q(q=[0, 1])", 2)
    np.testing.assert_array_equal(found.tables, some_trace.tables)


class Network(eqx.Module):
    """A network that nobody wrapped."""

    def __call__(self, x: Any) -> Any:
        return x


def torch_module() -> Any:
    """As PyTorch's look to others; importing it takes seconds."""
    return type("Linear", (), {"__module__": "torch.nn.modules.linear"})()


FRAME = pd.DataFrame({"ward": ["a", "b"], "age": [1.0, 2.0], "ill": [0, 1]})
NEEDS = r"task must be a model with init, losses, penalty, predict\. Got "


@pytest.mark.parametrize(
    "change, error, sentence",
    [
        (
            {"task": torch_module},
            TypeError,
            NEEDS + r"Linear\. Translate it: evenly\.from_torch\(module, example\), .*",
        ),
        (
            {"task": lambda: "softmax"},
            TypeError,
            NEEDS + r"'softmax'\. Use one of evenly\.models, such as .*",
        ),
        ({"task": lambda: None}, TypeError, NEEDS + r"NoneType\. .*"),
        (
            {"task": lambda: Softmax},
            TypeError,
            NEEDS + r"the class Softmax\. Create one with the sizes of your data: .*",
        ),
        (
            {"task": Network},
            TypeError,
            NEEDS + r"Network\. Wrap it: evenly\.models\.from_equinox\(lambda key: .*",
        ),
        (
            {"task": lambda: Softmax(features=7, classes=3)},
            ValueError,
            r"Softmax expects 7 features, but rows of .* have 5\. Pass .*",
        ),
        (
            {"federation": lambda: FRAME},
            TypeError,
            r"The second argument must be a Federation, got DataFrame\. Make one of the table:"
            r" evenly\.Federation\.from_frame\(table, "
            r"client='ward', label='ill'\), with the columns that name the client and the label of"
            r" each row\.",
        ),
        (
            {"federation": lambda: "synthetic"},
            TypeError,
            r".* got str\. Load the data set, such as evenly\.datasets\.DATASETS.*",
        ),
        (
            {"federation": lambda: (1, 2)},
            TypeError,
            r"The second argument must be a Federation, got tuple\. See evenly\..*",
        ),
        (
            {"algorithms": lambda: 3},
            TypeError,
            r"algorithms must be an algorithm, its notation or a list of them, got int\.",
        ),
        (
            {"algorithms": lambda: [3]},
            TypeError,
            r"An algorithm is needed, or its notation such as 'q-fedavg\(q=1\)', got int\.",
        ),
        (
            {"algorithms": lambda: METHOD},
            TypeError,
            r"An algorithm is needed, or its notation such as 'fedavg', got Method\.",
        ),
        ({"algorithms": list}, ValueError, r"At least one algorithm is needed, got none\."),
        (
            {"algorithms": lambda: "fedavgg"},
            ValueError,
            r"There is no method 'fedavgg'\. Did you mean 'fedavg'\? .*",
        ),
        ({"rounds": lambda: "10"}, TypeError, r"rounds must be a whole number, got '10'\."),
        ({"rounds": lambda: 2.5}, TypeError, r"rounds must be a whole number, got 2\.5\."),
        ({"rounds": lambda: 0}, ValueError, r"rounds must be at least 1, got 0\."),
    ],
)
def test_other_arguments_are_answered_with_a_sentence(
    change: dict[str, Any], error: type[Exception], sentence: str, tiny: Federation, task: Softmax
):
    given: dict[str, Any] = {"task": task, "federation": tiny, "algorithms": "fedavg", "rounds": 2}
    with pytest.raises(error, match=f"^{sentence}$"):
        evenly.train(**given | {name: make() for name, make in change.items()})


def test_an_algorithm_is_written_as_text():
    with pytest.raises(
        TypeError, match=r"^A method is written as text, such as 'q-fedavg\(q=1\)', got Method\.$"
    ):
        evenly.algorithm(METHOD)  # pyright: ignore[reportArgumentType]


def test_a_class_of_another_module_is_found():
    with pytest.raises(
        AttributeError, match=r"^module 'evenly' has no .*; it is evenly.types.Rule$"
    ):
        evenly.Rule  # pyright: ignore  # noqa: B018
    with pytest.raises(AttributeError, match=r"'Nothing'$"):
        evenly.Nothing  # pyright: ignore  # noqa: B018


def test_what_clients_reveal_is_all_told():
    """q-FedAvg divides by a number that depends on the squared norm of every client's update:
    masked sums do not tell it.
    """
    assert reveals(METHODS["q-fedavg"], Full()) == "loss, square_norm"
    column = list(methods_table().columns[2].cells)
    for method, told in zip(METHODS.values(), column, strict=True):
        built = method.build({k: v[0] for k, v in method.defaults.items() if isinstance(v, list)})
        every = {name.removesuffix(" (once)") for name in str(told).split(", ")} - {"nothing"}
        assert every == built.needs - {"chance"}


def test_a_search_in_python_leaves_what_its_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Training and drawing stand aside: they have tests of their own."""
    for name in ("write_report", "write_tuning_report"):
        monkeypatch.setattr(
            f"evenly.report.tuning_page.{name}", lambda found, path, *_: path.write_text("page")
        )
    monkeypatch.setattr("evenly.experiment.tuning.execute", Trainer())
    found = evenly.tune(DATA, "q-fedavg(q=[1, 5])", rounds=10, seeds=1, out=tmp_path)
    page = (
        (SOURCE.parents[1] / "docs" / "tuning.md")
        .read_text()
        .split("## Output files")[1]
        .split("##")[0]
    )
    named = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert {"report.html", "tuning.csv", "chosen/", "study.db", "plan.json"} <= set(named)
    assert [
        name
        for name in (*named, "chosen/report.html", "chosen/results.csv")
        if not (tmp_path / name).exists()
    ] == []
    assert found.choice.chosen
    assert jax.tree.leaves(found.tuning.final.runs[0].trace.tables)
