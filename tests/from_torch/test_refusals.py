"""What `from_torch` refuses, and losses of all kinds."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import evenly
from evenly.data.federation import Shard
from evenly.torch_models.module_task import Translated

ROWS = torch.linspace(-1, 1, 12).reshape(3, 4)


def refused(module: Any, sentence: str, error: type[Exception] = ValueError, **given: Any) -> None:
    with pytest.raises(error, match=sentence):
        evenly.from_torch(module, given.pop("example", ROWS), **given)


class Strange(nn.Module):
    """A linear layer inside, with an operation that nobody translates."""

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.inside, self.operation = nn.Linear(4, 3), operation

    def forward(self, x: Tensor) -> Any:
        return self.operation(self.inside(x))


def test_operations_without_a_translation_are_named_with_their_module():
    refused(
        nn.Sequential(nn.Linear(4, 4), Strange(lambda x: torch.special.bessel_j0(x))),
        r"Sequential has operations that have no translation to JAX: aten\.special_bessel_j0\."
        r"default in 1 \(Strange\)\. Replace them",
    )


class Widened(nn.Module):
    """A convolution along a line that makes it longer, inside another module."""

    def __init__(self) -> None:
        super().__init__()
        self.longer = nn.ConvTranspose1d(1, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.longer(x[:, None]).flatten(1)


def test_cases_that_an_operation_does_not_cover_are_named_with_what_to_do():
    refused(
        nn.Sequential(nn.Linear(4, 4), Widened()),
        r"aten\.convolution\.default in 1\.longer \(ConvTranspose1d\) cannot be translated to JAX:"
        r" .* use ConvTranspose2d",
    )
    chosen = torch.tensor([True, False, True])
    refused(Strange(lambda x: x[:, chosen]), r"aten\.index\.Tensor in .* Use torch\.where")


class FiveAxes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + torch.ones(1, 1, 1, 1, 1)).mean((0, 3, 4))


def test_an_image_and_an_array_with_more_axes_are_named_with_what_to_do():
    refused(
        nn.Sequential(nn.Conv2d(1, 2, 2), FiveAxes()),
        r"aten\.add\.Tensor in 1 \(FiveAxes\) .* an array with 5 axes\. Reshape it",
        example=torch.zeros(3, 1, 5, 5),
    )


@pytest.mark.parametrize(
    "operation, sentence",
    [
        (
            lambda x: x if x.sum() > 0 else -x,
            r"PyTorch cannot trace Strange in evaluation, at `return self\.operation\(.*\)`: "
            r".*data-dependent.* by torch\.where",
        ),
        (lambda x: x + x.detach().numpy().sum(), "in place of NumPy's"),
        (lambda x: torch.stack([2 * row for row in x]), "apply layers to the whole batch"),
        (lambda x: {"scores": x}, "must return one tensor of scores .* but it returns a dict"),
        (lambda x: x.reshape(3, 3), "for any number of rows"),
        (lambda x: (x, x), "must return one tensor of scores .* but it returns a tuple"),
        (lambda x: x.sum(), r"must return scores \[n, classes\], .* gave shape \[\]"),
        (lambda x: x[:, :, None], r"gave shape \[3, 3, 1\]"),
        (lambda x: x - x.mean(0), "mixes the rows of a batch in evaluation"),
    ],
)
def test_modules_that_cannot_be_used_are_refused(operation: Any, sentence: str):
    refused(Strange(operation), sentence)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x > 0).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(
            x[:, :, None], lengths, batch_first=True, enforce_sorted=False
        )
        return self.lstm(packed)[1][0][-1]


def test_packed_sequences_are_refused_with_another_way():
    refused(
        nn.Sequential(Packed()),
        r"in evaluation, in 0\.lstm \(LSTM\), at `return self\.lstm.*padded sequence.*lengths - 1",
    )


def test_an_example_that_does_not_fit_is_refused_before_it_is_traced():
    sentence = r"cannot be applied to an example of shape \[2, 4\]"
    wrong = nn.Sequential(nn.Linear(5, 3))
    refused(wrong, sentence + r", in 0 \(Linear\): .* its forward takes", example=ROWS[:2])
    refused(nn.Bilinear(4, 4, 3), sentence + ".* in one tensor", example=ROWS[:2])


def test_random_numbers_in_evaluation_are_refused():
    refused(
        Strange(lambda x: functional.dropout(x, 0.5, training=True)),
        "draws random numbers in evaluation",
    )


class Slip(nn.Module):
    """Dropout that does not know whether the module is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(functional.dropout(x, 0.3))


def test_dropout_in_evaluation_is_named_also_where_the_example_is_zero():
    refused(Slip(), r"draws random.*training=self\.training", example=torch.zeros(3, 4))


@pytest.mark.parametrize(
    "example", [torch.zeros(2, 4), torch.ones(2, 4, dtype=torch.int64), ROWS[:1] > 0]
)
def test_modules_that_mix_rows_are_refused_whatever_the_example_holds(example: Tensor):
    centred = Strange(lambda x: x - x.mean(0))
    float_first = nn.Sequential(Cast(), centred)
    refused(float_first, "mixes the rows of a batch in evaluation", example=example)


class Cast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.float()


class Counting(nn.Module):
    """Buffers that change in training and in evaluation."""

    def __init__(self, moved: bool) -> None:
        super().__init__()
        self.layer, self.moved = nn.Linear(4, 3), moved
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.mul_(0.5).add_(x.mean(0) if self.moved else torch.ones(4))
        return self.layer(x)


def test_a_buffer_that_also_changes_in_evaluation_is_state():
    refused(Counting(moved=True), "mixes the rows of a batch in training: 'seen' would depend")
    task = evenly.from_torch(Counting(moved=False), torch.zeros(2, 4))
    assert (np.asarray(task.init(jax.random.key(0)).state["seen"]) == 0).all()
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    federation = evenly.Federation.from_arrays(x, np.arange(12) % 3, np.arange(12) // 6)
    (trace,) = evenly.train(task, federation, "fedavg(epochs=3, batch_size=10)+full", rounds=1)
    np.testing.assert_allclose(trace.model.state["seen"], 1.75)  # 1, 1.5, 1.75


class CountedInEvaluation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.seen.add_(1)
        return self.layer(x)


def test_a_buffer_that_only_evaluation_changes_stays_what_it_is():
    task = evenly.from_torch(CountedInEvaluation(), ROWS)
    assert float(task.to_torch(task.init(jax.random.key(0)))["seen"]) == 0


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 1}


def test_what_no_task_can_hold_is_refused_with_what_to_do():
    refused(nn.Sequential(Extra(4, 3)), r"parameters nor buffers: 0\._extra_state\. .* Leave out")
    refused(nn.Linear(4, 3).bfloat16(), r"bfloat16, .*: weight, bias\. Pass module\.float\(\)")
    average = nn.BatchNorm1d(4, momentum=None)
    refused(nn.Sequential(average, nn.Linear(4, 3)), r"in 0 \(BatchNorm1d\).* Give it a momentum")


def test_modules_without_weights_or_compiled_ones_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy layers are new
        lazy = nn.Sequential(nn.LazyLinear(3))
    refused(lazy, r"lazy layers without weights: 0\.weight, 0\.bias\. Give their sizes")
    compiled = nn.Sequential()
    compiled.add_module("_orig_mod", nn.Linear(4, 3))  # as torch.compile names it
    refused(compiled, "as it was before torch.compile")


def test_arguments_are_checked():
    refused("a network", "requires a torch.nn.Module, or a function", TypeError)
    refused(lambda: 3, "requires a torch.nn.Module, or a function", TypeError)
    refused(
        nn.Linear, r"missing a required argument: 'in_features'.* from_torch\(lambda", TypeError
    )
    refused(nn.Linear(4, 3), "at least one row", example=torch.zeros(0, 4))
    refused(nn.Linear(4, 3), r"or more axes, got shape \[4\]", example=torch.zeros(4))
    refused(nn.Linear(4, 3).requires_grad_(False), "has no parameters to train")
    refused(nn.Linear(4, 3), "loss must be 'cross-entropy', 'binary'", TypeError, loss="hinge")
    refused(nn.Linear(4, 1), "Pass loss='binary' for a single score")
    refused(nn.Linear(4, 3), "Pass loss='cross-entropy' for several classes", loss="binary")
    refused(nn.Linear(4, 1), "Leave the sigmoid out", loss=nn.BCELoss())


def test_data_of_another_form_are_refused():
    task = evenly.from_torch(nn.Linear(4, 3), ROWS)
    model = task.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"traced with rows of shape \[4\]"):
        task.predict(model, jnp.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"traced with float32, but the features are uint8"):
        task.predict(model, jnp.zeros((2, 4), jnp.uint8))
    federation = evenly.synthetic(clients=3)
    with pytest.raises(ValueError, match=r"cannot be applied to rows of shape \[60\]: the module"):
        evenly.train(task, federation, "fedavg", rounds=1)
    narrow = evenly.from_torch(nn.Linear(60, 3), torch.zeros(2, 60))
    with pytest.raises(ValueError, match=r"has 3 classes, .* 4 labels\. Let it return 4 scores"):
        evenly.train(narrow, federation, "fedavg", rounds=1)


LABELS = np.array([0, 2, 1], np.int32)
WEIGHTS = torch.tensor([1.0, 2.0, 5.0])


def losses_of(outputs: int, loss: Any, labels: np.ndarray) -> tuple[Any, np.ndarray, nn.Module]:
    torch.manual_seed(0)
    module = nn.Linear(4, outputs)
    task = evenly.from_torch(module, ROWS, loss=loss)
    assert isinstance(task, Translated)
    ones = jnp.ones(len(labels))
    shard = Shard(jnp.asarray(ROWS.numpy()), jnp.asarray(labels), jnp.asarray(labels), ones, ones)
    return task, np.asarray(jax.jit(task.losses)(task.init(jax.random.key(0)), shard)), module


@pytest.mark.parametrize(
    "loss, reduction",
    [
        (nn.CrossEntropyLoss(), "mean"),
        (nn.CrossEntropyLoss(reduction="sum", weight=WEIGHTS), "sum"),
        (nn.CrossEntropyLoss(reduction="none", weight=WEIGHTS), "mean"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), "mean"),
        (nn.MultiMarginLoss(), "mean"),
        (lambda scores, y: functional.cross_entropy(scores * 2, y), "mean"),
    ],
)
def test_losses_of_pytorch_are_those_of_each_row(loss: Any, reduction: str):
    task, found, module = losses_of(3, loss, LABELS)
    labels = torch.from_numpy(LABELS).long()
    with torch.no_grad():
        expected = [float(loss(module(ROWS[i : i + 1]), labels[i : i + 1]).sum()) for i in range(3)]
    assert task.reduction == reduction
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_weighted_mean_is_refused():
    loss = nn.CrossEntropyLoss(weight=WEIGHTS)
    refused(nn.Linear(4, 3), "neither the sum nor the mean .* reduction='none'", loss=loss)


@pytest.mark.parametrize("loss", ["binary", nn.BCEWithLogitsLoss()])
def test_one_score_decides_between_two_classes(loss: Any):
    labels = np.array([0, 1, 1], np.int32)
    task, found, module = losses_of(1, loss, labels)
    with torch.no_grad():
        scores = module(ROWS)[:, 0]
        target = torch.from_numpy(labels).float()
        expected = functional.binary_cross_entropy_with_logits(scores, target, reduction="none")
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    model = task.init(jax.random.key(0))
    chances = task.probabilities(model, ROWS.numpy())
    np.testing.assert_allclose(chances[:, 1], torch.sigmoid(scores), rtol=1e-5)
    assert (np.asarray(task.predict(model, ROWS.numpy())) == (scores.numpy() > 0)).all()


def test_a_function_that_draws_what_is_not_trained_is_refused():
    def frozen() -> nn.Module:
        module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        module[0].requires_grad_(False)
        return module

    def projected() -> nn.Module:
        module = nn.Linear(4, 3)
        module.register_buffer("scale", torch.rand(3))
        return module

    def fixed() -> nn.Module:
        module = frozen()
        nn.init.ones_(module[0].weight)
        nn.init.ones_(module[0].bias)
        return module

    refused(frozen, r"gives '0\.weight', '0\.bias' other values for each seed.* module itself")
    refused(projected, "gives 'scale' other values")
    evenly.from_torch(frozen(), ROWS)
    evenly.from_torch(fixed, ROWS)


SYMBOLS = torch.arange(6).reshape(3, 2)


def reader(**settings: Any) -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 4, **settings), nn.Flatten(), nn.Linear(8, 2))


def test_gradients_that_count_words_are_refused():
    refused(
        reader(scale_grad_by_freq=True),
        r"aten\.embedding\.default in 0 \(Embedding\) .* scale_grad_by_freq=False",
        example=SYMBOLS,
    )


class Floats(nn.Module):
    """Symbols that are stored as floats, and a mean of their embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(10, 4, mode="mean"), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bag(x.long()))


@pytest.mark.parametrize(
    "module, example", [(reader(), SYMBOLS), (Floats(), SYMBOLS.float())], ids=["whole", "floats"]
)
@pytest.mark.parametrize("symbol", [10, -1])
def test_symbols_that_an_embedding_does_not_know_are_refused(
    module: nn.Module, example: Tensor, symbol: int
):
    task = evenly.from_torch(module, example)
    x = np.arange(40).reshape(20, 2) % 10
    y, client = np.arange(20) % 2, np.arange(20) // 10
    x = x.astype(example.numpy().dtype)
    evenly.models.check_task(task, evenly.Federation.from_arrays(x, y, client))
    x[7, 1] = symbol
    federation = evenly.Federation.from_arrays(x, y, client)
    with pytest.raises(ValueError, match=f"reads symbols 0 to 9, but .* hold {symbol}\\. Let it"):
        evenly.train(task, federation, "fedavg", rounds=1)


def test_an_embedding_of_what_is_computed_may_read_any_features():
    module = nn.Sequential(Strange(lambda x: x.argmax(1)), nn.Embedding(3, 4), nn.Linear(4, 2))
    task: Any = evenly.from_torch(module, ROWS)
    assert task.symbols is None


def test_a_loss_in_jax_returns_one_number_per_row():
    def squared(scores: Any, y: Any) -> Any:
        return ((scores - jax.nn.one_hot(y, 3)) ** 2).sum(1)

    _, found, module = losses_of(3, squared, LABELS)
    with torch.no_grad():
        target = functional.one_hot(torch.from_numpy(LABELS).long(), 3)
        expected = ((module(ROWS) - target) ** 2).sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    refused(
        nn.Linear(4, 3), "must return one number per row", loss=lambda s, y: squared(s, y).mean()
    )


def test_a_loss_in_jax_that_mixes_rows_is_refused():
    def centred(scores: Any, y: Any) -> Any:
        losses = ((scores - jax.nn.one_hot(y, 3)) ** 2).sum(1)
        return losses - losses.mean()

    refused(nn.Linear(4, 3), "The loss centred mixes the rows of a batch", loss=centred)


class CentredInTraining(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Linear(4, 3), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(x)
        return self.layer(x - x.mean(0) if self.training else x)


@pytest.mark.parametrize(
    "example", [torch.zeros(2, 4), pytest.param(ROWS, marks=pytest.mark.further)]
)
def test_modules_that_mix_rows_in_training_are_refused(example: Tensor):
    sentence = "CentredInTraining mixes the rows of a batch in training: the scores of rows would"
    refused(CentredInTraining(0.0), sentence, example=example)
    refused(CentredInTraining(0.5), sentence, example=example)
    images = [nn.Unflatten(1, (1, 2, 2)), nn.InstanceNorm2d(1, track_running_stats=True)]
    refused(
        nn.Sequential(*images, nn.Flatten(), nn.Linear(4, 3)),
        r"'1\.running_mean'.* would depend on the padding .*track_running_stats=False",
        example=example,
    )


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int64, torch.float32, pytest.param(torch.uint8, marks=pytest.mark.further)],
)
def test_batch_norm_leaves_padding_out(dtype: torch.dtype):
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop, self.head = nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.drop(self.norm(x.float())))

    evenly.from_torch(Normed(), torch.zeros(2, 4, dtype=dtype))


def test_frozen_and_shared_weights_stay_what_they_are():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fixed, self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.two.weight, self.head = self.one.weight, nn.Linear(4, 3)
            self.fixed.requires_grad_(False)
            self.register_buffer("shift", torch.arange(4.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.two(torch.relu(self.one(self.fixed(x)))) + self.shift)

    module = Tied()
    task = evenly.from_torch(module, ROWS)
    model = task.init(jax.random.key(0))
    assert set(model) == {"one.weight", "one.bias", "two.bias", "head.weight", "head.bias"}
    moved = task.to_torch(jax.tree.map(lambda leaf: leaf + 1, model))
    assert torch.equal(moved["one.weight"], moved["two.weight"])
    assert torch.equal(moved["fixed.weight"], module.fixed.weight)
    assert torch.equal(moved["shift"], torch.arange(4.0))


@pytest.mark.parametrize(
    "module, loss, ends",
    [
        (nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), "cross-entropy", "softmax"),
        (nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), "binary", "sigmoid"),
        (nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0)), "binary", "sigmoid"),
    ],
)
def test_a_module_that_ends_with_what_its_loss_contains_is_named(
    module: nn.Module, loss: str, ends: str
):
    with pytest.warns(UserWarning, match=f"Sequential ends with {ends}, and the loss '{loss}'"):
        evenly.from_torch(module, ROWS, loss=loss)


class Clamped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(1e-6, 1 - 1e-6)


@pytest.mark.parametrize("last", [[], [nn.Flatten(0)], [Clamped()]])
def test_a_probability_in_place_of_a_score_is_refused(last: list[nn.Module]):
    def binary(chances: Tensor, y: Tensor) -> Tensor:  # the name of a loss is no loss
        return functional.binary_cross_entropy(chances.reshape(-1), y.float())

    module = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), *last)
    refused(module, "Sequential ends with sigmoid, .* Leave the sigmoid out", loss=binary)


def test_scores_and_other_activations_draw_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evenly.from_torch(nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1)), ROWS)
        evenly.from_torch(nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 3)), ROWS)
