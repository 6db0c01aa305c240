"""PyTorch's operations and the functions that compute them in JAX.

`OPERATIONS` maps the names of core ATen, to which `evenly.torch_models.tracing` reduces a module,
to functions with the same parameters. A name without an overload holds for all overloads. To
support another operation, add a line.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from evenly.torch_models import arithmetic, arrays, images, recurrent
from evenly.torch_models.arithmetic import reduction, scaled_term, with_place
from evenly.torch_models.operands import Operation, elementwise

plain = Operation


def on_images(function: Callable[..., Any]) -> Operation:
    """An operation that takes images as they are."""
    return Operation(function, images=True)


def with_step(function: Callable[..., Any], *, images: bool = False) -> Operation:
    """An operation that knows the step that it is part of."""
    return Operation(function, images=images, step=True)


def nothing(*_: Any, **__: Any) -> None:
    """An operation that only checks what it is given."""


OF_ONE = {
    "abs": arithmetic.absolute, "acos": jnp.acos, "acosh": jnp.acosh, "asin": jnp.asin,
    "asinh": jnp.asinh,
    "atan": jnp.atan, "atanh": jnp.atanh, "ceil": jnp.ceil, "cos": jnp.cos, "cosh": jnp.cosh,
    "erf": lax.erf, "erfinv": lax.erf_inv, "exp": jnp.exp, "expm1": jnp.expm1,
    "floor": jnp.floor, "isfinite": jnp.isfinite, "isinf": jnp.isinf, "isnan": jnp.isnan,
    "log": jnp.log, "log10": jnp.log10, "log1p": jnp.log1p, "log2": jnp.log2, "neg": jnp.negative,
    "reciprocal": jnp.reciprocal, "round": jnp.round, "rsqrt": lax.rsqrt, "sign": jnp.sign,
    "sin": jnp.sin, "sinc": jnp.sinc, "sinh": jnp.sinh, "sqrt": jnp.sqrt,
    "square": jnp.square, "tan": jnp.tan, "tanh": jnp.tanh, "trunc": jnp.trunc,
    "logical_not": jnp.logical_not, "bitwise_not": jnp.bitwise_not,
    # activations
    "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid, "silu": jax.nn.silu, "gelu": arithmetic.gelu,
    "elu": arithmetic.elu, "hardtanh": arithmetic.hardtanh, "softplus": arithmetic.softplus,
    "hardsigmoid": lambda x: arithmetic.hardtanh(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * arithmetic.hardtanh(x + 3, 0, 6) / 6,
    "leaky_relu": lambda x, negative_slope=0.01: jnp.where(x > 0, x, x * negative_slope),
    "_prelu_kernel": lambda x, weight: jnp.where(x > 0, x, x * weight),
    # values that pass
    "_to_copy": arithmetic.convert, "alias": arithmetic.convert, "clone": arithmetic.convert,
    "contiguous": arithmetic.convert, "lift_fresh_copy": arithmetic.convert,
    "detach": lax.stop_gradient,
}  # fmt: skip

OF_TWO = {
    "add": scaled_term(operator.add), "sub": scaled_term(operator.sub), "mul": operator.mul,
    "rsub": scaled_term(lambda a, b: b - a), "div": arithmetic.divide, "pow": arithmetic.power,
    "floor_divide": jnp.floor_divide, "remainder": jnp.remainder, "fmod": jnp.fmod,
    "maximum": jnp.maximum, "minimum": jnp.minimum, "atan2": jnp.atan2,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
    "logical_and": jnp.logical_and, "logical_or": jnp.logical_or, "logical_xor": jnp.logical_xor,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    # of three
    "where": jnp.where, "clamp": arithmetic.clamp, "lerp": lambda a, b, w: a + w * (b - a),
    "masked_fill": lambda x, mask, value: jnp.where(mask, jnp.asarray(value, x.dtype), x),
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, value=1: x + value * a / b,
}  # fmt: skip

PRODUCTS = {
    "mm": plain(jnp.matmul), "bmm": plain(jnp.matmul), "matmul": plain(jnp.matmul),
    "mv": plain(jnp.matmul), "dot": plain(jnp.dot),
    "addmm": plain(arithmetic.addmm), "baddbmm": plain(arithmetic.addmm),
    "linear": plain(arithmetic.linear), "embedding": plain(arithmetic.embedding),
    "_embedding_bag": plain(arithmetic.embedding_bag), "_trilinear": plain(arithmetic.trilinear),
    "convolution": with_step(images.convolution, images=True),
    "scaled_dot_product_attention": with_step(arithmetic.attention),
    "lstm": with_step(recurrent.lstm_layers), "gru": with_step(recurrent.gru_layers),
    "rnn_tanh": with_step(recurrent.tanh_layers), "rnn_relu": with_step(recurrent.relu_layers),
}  # fmt: skip

REDUCTIONS = {
    "sum": reduction(jnp.sum), "mean": reduction(jnp.mean), "prod": reduction(jnp.prod),
    "amax": reduction(jnp.max), "amin": reduction(jnp.min),
    "any": reduction(jnp.any), "all": reduction(jnp.all),
    "logsumexp": reduction(jax.scipy.special.logsumexp),
    "var": plain(arithmetic.variance), "std": plain(arithmetic.deviation),
    "var_mean": plain(arithmetic.variance_and_mean),
    "max": plain(jnp.max), "min": plain(jnp.min),
    "max.dim": plain(with_place(jnp.argmax)), "min.dim": plain(with_place(jnp.argmin)),
    "argmax": plain(arithmetic.place_of(jnp.argmax)),
    "argmin": plain(arithmetic.place_of(jnp.argmin)),
    "cumsum": plain(lambda x, dim, dtype=None: jnp.cumsum(x, axis=dim)),
    "cumprod": plain(lambda x, dim, dtype=None: jnp.cumprod(x, axis=dim)),
    "logcumsumexp": plain(lambda x, dim: lax.cumlogsumexp(x, axis=dim % x.ndim)),
    "topk": plain(arithmetic.topk), "sort": plain(arithmetic.sort),
    "linalg_vector_norm": plain(arithmetic.vector_norm),
    "_cdist_forward": plain(arithmetic.distances),
    "_softmax": plain(arithmetic.along_axis(jax.nn.softmax)),
    "_log_softmax": plain(arithmetic.along_axis(jax.nn.log_softmax)),
    "softmax": plain(arithmetic.along_axis(jax.nn.softmax)),
    "log_softmax": plain(arithmetic.along_axis(jax.nn.log_softmax)),
    "nll_loss_forward": plain(arithmetic.negative_likelihood),
}  # fmt: skip

LAYERS = {
    "layer_norm": plain(arithmetic.layer_norm),
    "native_layer_norm": plain(lambda *args: (arithmetic.layer_norm(*args), None, None)),
    "group_norm": on_images(images.group_norm_of),
    "native_group_norm": on_images(images.native_group_norm),
    "_native_batch_norm_legit_no_training": on_images(images.batch_norm_in_evaluation),
    "_native_batch_norm_legit_functional": with_step(images.batch_norm_in_training, images=True),
    "_native_batch_norm_legit.no_stats": with_step(
        images.batch_norm_without_statistics, images=True
    ),
    "max_pool2d_with_indices": on_images(images.max_pool_images),
    "avg_pool2d": on_images(images.mean_pool_images),
    "_adaptive_avg_pool2d": on_images(images.adaptive_mean_pool),
    "adaptive_avg_pool2d": on_images(images.adaptive_mean_pool),
    "adaptive_max_pool2d": on_images(images.adaptive_max_pool),
    "upsample_nearest2d": on_images(images.upsample_nearest),
    "upsample_bilinear2d": on_images(images.upsample_bilinear),
    "native_dropout": with_step(lambda *args: (arrays.dropout(*args), None), images=True),
    "bernoulli": with_step(arrays.bernoulli),
    "rand": with_step(arrays.uniform), "rand_like": with_step(arrays.uniform),
    "randn": with_step(arrays.normal), "randn_like": with_step(arrays.normal),
}  # fmt: skip

SHAPES = {
    "view": on_images(arrays.view), "reshape": on_images(arrays.view),
    "_unsafe_view": on_images(arrays.view), "permute": on_images(arrays.permute),
    "transpose": plain(jnp.swapaxes), "t": plain(jnp.transpose),
    "unsqueeze": plain(jnp.expand_dims), "squeeze": plain(arrays.squeeze),
    "expand": plain(arrays.expand), "cat": on_images(arrays.concatenate),
    "stack": plain(lambda tensors, dim=0: jnp.stack(tensors, axis=dim)),
    "slice": on_images(arrays.slice_of),
    "select": plain(lambda x, dim, index: lax.index_in_dim(x, index, dim, keepdims=False)),
    "split": plain(arrays.split), "split_with_sizes": plain(arrays.split),
    "unbind": plain(arrays.unbind), "constant_pad_nd": on_images(arrays.pad_constant),
    "repeat": plain(jnp.tile), "flip": plain(jnp.flip),
    "roll": plain(lambda x, shifts, dims=None: jnp.roll(x, shifts, dims or None)),
    "tril": plain(jnp.tril), "triu": plain(jnp.triu),
    "index": plain(arrays.at_indices), "_unsafe_index": plain(arrays.at_indices),
    "index_put": plain(arrays.put_at_indices), "gather": plain(arrays.gather),
    "scatter": plain(arrays.scatter), "scatter_add": plain(arrays.scatter_add),
    "select_scatter": plain(arrays.select_scatter), "slice_scatter": plain(arrays.slice_scatter),
    "index_select": plain(lambda x, dim, index: jnp.take(x, index, axis=dim, mode="clip")),
    "copy": plain(lambda x, source, *_: jnp.broadcast_to(source, x.shape).astype(x.dtype)),
    "sym_size": on_images(lambda x, dim: x.shape[dim]),
    # new arrays
    "full": plain(arrays.full), "full_like": on_images(arrays.full_like),
    "zeros_like": on_images(arrays.full_like), "empty_like": on_images(arrays.full_like),
    "ones_like": on_images(lambda x, **given: arrays.full_like(x, 1, **given)),
    "zeros": plain(lambda size, **given: arrays.full(size, 0.0, **given)),
    "ones": plain(lambda size, **given: arrays.full(size, 1.0, **given)),
    "empty_permuted": plain(lambda size, order, **given: arrays.full(size, 0.0, **given)),
    "empty": plain(lambda size, **given: arrays.full(size, 0.0, **given)),
    "new_full": on_images(arrays.new_full), "new_zeros": on_images(arrays.new_full),
    "new_empty": on_images(arrays.new_full),
    "new_ones": on_images(lambda x, size, **given: arrays.new_full(x, size, 1, **given)),
    "arange": plain(arrays.arange), "scalar_tensor": plain(arithmetic.convert),
    "eye": plain(lambda n, m=None, **_: jnp.eye(n, m)),
    # checks while PyTorch runs
    "_assert_scalar": plain(nothing), "_assert_async": plain(nothing),
    "_assert_tensor_metadata": plain(nothing),
    "sym_constrain_range_for_size": plain(nothing),
}  # fmt: skip

# Layers whose weights are stored as `evenly.models.layers` has them, and numbers of rows.
OWN = {
    "evenly.dense": plain(arithmetic.dense_layer),
    "evenly.convolution": with_step(images.stored_convolution, images=True),
    "operator.getitem": on_images(operator.getitem),
    **{
        f"operator.{name}": plain(getattr(operator, name))
        for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow",
                     "eq", "ne", "lt", "le", "gt", "ge")
    },
}  # fmt: skip

OPERATIONS: dict[str, Operation] = {
    **{f"aten.{name}": elementwise(function) for name, function in {**OF_ONE, **OF_TWO}.items()},
    **{
        f"aten.{name}": operation
        for part in (PRODUCTS, REDUCTIONS, LAYERS, SHAPES)
        for name, operation in part.items()
    },
    **OWN,
}
