"""Digests of Python objects: the same for objects that compute the same, also in another process.

A function counts with its code, its defaults, the values that it encloses, and the global values
that it reads. An object counts with its class and its attributes, an array with its numbers. What
belongs to an installed package counts by its name, and by its source unless that is long known.
"""

import copyreg
import dataclasses
import dis
import hashlib
import inspect
import secrets
import sys
import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
# packages whose objects count by their names alone, besides Python's own
BY_NAME = ("evenly", "jax", "jaxlib", "numpy", "torch")


def digest_of(thing: Any) -> str:
    """Hash of an object and of everything that it holds.

    What cannot be read, such as a lock or an open file, gets another digest in each call, and a
    warning says so.

    Args:
        thing: Any object, such as a task, an algorithm or a function.

    Returns:
        A hexadecimal number.

    Example:
        >>> def power(exponent):
        ...     return lambda x: x**exponent
        >>> digest_of(power(2)) == digest_of(power(2)), digest_of(power(2)) == digest_of(power(3))
        (True, False)
    """
    return _Digests().of(thing)


class _Digests:
    """The digests of the objects that were met. Of an object that holds itself, the inner one
    counts as "cycle".
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}  # with the object, so that ids stay its own

    def of(self, value: Any) -> str:
        if type(value) in PLAIN or isinstance(value, np.dtype):
            return _hash([type(value).__name__, repr(value)])
        if id(value) not in self._known:
            self._known[id(value)] = value, "cycle"
            self._known[id(value)] = value, _hash(self._parts(value))
        return self._known[id(value)][1]

    def _parts(self, value: Any) -> Iterable[str]:
        """Texts and digests that together tell a value from others."""
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if address := _address(value):
            return [address, _source(value)]
        if isinstance(value, np.ndarray | np.generic | jax.Array) or hasattr(value, "detach"):
            return self._array(value)
        if isinstance(value, CodeType):
            consts, names = self.of(value.co_consts), self.of(value.co_names + value.co_freevars)
            return ["code", value.co_code.hex(), consts, names]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        return self._object(value)

    def _array(self, value: Any) -> Iterable[str]:
        if hasattr(value, "detach"):  # of PyTorch
            value = value.detach().cpu().numpy()
        elif jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        numbers = self.of(array.tolist()) if array.dtype.hasobject else array.tobytes().hex()
        return ["array", str(array.dtype), str(array.shape), numbers]

    def _function(self, function: FunctionType) -> Iterable[str]:
        code = function.__code__
        # of two lambdas in one line, Python knows the line only
        text = "" if code.co_name == "<lambda>" else _source(code)
        yield from ("function", text or self.of(code))
        yield self.of((function.__defaults__, function.__kwdefaults__, vars(function)))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield from (name, self.of(cell.cell_contents))
            except ValueError:  # not yet set
                yield from (name, "empty")
        # a wrapper carries the name of another module, but not its global values
        if not _installed(function.__globals__.get("__name__", "__main__")):
            for name in sorted(_globals_of(code) & function.__globals__.keys()):
                yield from (name, self.of(function.__globals__[name]))

    def _class(self, kind: type) -> Iterable[str]:
        yield from ("class", kind.__qualname__, *map(self.of, kind.__bases__))
        for name, member in sorted(vars(kind).items()):
            code = getattr(member, "__code__", None)
            # methods that a decorator wrote follow from the fields
            own = code is not None and code.co_filename != "<string>"
            if name != "_abc_impl" and (own or not name.startswith("__")):
                yield from (name, self.of(member))

    def _object(self, value: Any) -> Iterable[str]:
        kind = type(value)
        yield from ("object", self.of(kind))
        if isinstance(value, set | frozenset):
            yield from sorted(map(self.of, value))
        elif isinstance(value, Mapping):
            yield from (self.of(part) for item in value.items() for part in item)
        elif isinstance(value, list | tuple):
            yield from map(self.of, value)
        elif isinstance(value, property):
            yield from map(self.of, (value.fget, value.fset))
        elif isinstance(value, staticmethod | classmethod):
            yield self.of(value.__func__)
        elif isinstance(value, cached_property):
            yield self.of(value.func)
        elif dataclasses.is_dataclass(value):
            yield from (self.of(part) for item in _attributes(value) for part in item)
        elif hasattr(value, "__wrapped__") and _installed(kind.__module__):  # such as jax.jit(f)
            yield self.of(value.__wrapped__)
        else:
            yield from self._pickled(value)

    def _pickled(self, value: Any) -> Iterable[str]:
        """What `pickle` would store of a value."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            found = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception as error:  # each class raises what it likes
            warnings.warn(
                f"A {type(value).__qualname__} is part of a model or a method passed from Python,"
                f" and what it holds cannot be read ({error}). A repeated call counts as one with"
                " another object, so that finished runs are not found again.",
                stacklevel=2,
            )
            return [secrets.token_hex()]
        if isinstance(found, str):
            return ["global", found]
        parts: list[Any] = [*found, None, None, None]
        build, arguments, state, items, pairs = parts[:5]
        return map(self.of, (build, arguments, state, list(items or ()), list(pairs or ())))


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def _installed(module: str) -> bool:
    """Whether a module is Python's, evenly's, or of an installed package."""
    root = module.partition(".")[0]
    if root == "__main__":  # a tool that runs the user's code may be installed
        return False
    if root in sys.stdlib_module_names or root in BY_NAME:
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _address(value: Any) -> str:
    """`module.name` of what an installed package holds under that name, or "" for anything else."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(name, str) or not isinstance(module, str) or not _installed(module):
        return ""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}.{name}" if found is value else ""


def _source(value: Any) -> str:
    """The source of a class, a function or its code; "" where it is not known or does not count."""
    root = (getattr(value, "__module__", None) or "").partition(".")[0]
    if root in sys.stdlib_module_names or root in BY_NAME:
        return ""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):  # typed into an interpreter, or compiled
        return ""


def _globals_of(code: CodeType) -> set[str]:
    """Names of the global values that a function and the functions inside it read."""
    inner = [_globals_of(part) for part in code.co_consts if isinstance(part, CodeType)]
    own = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    return own.union(*inner)


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    """Fields and attributes by name, without what can be computed from them."""
    names = {field.name for field in dataclasses.fields(value)} | getattr(
        value, "__dict__", {}
    ).keys()
    cached = {
        name
        for kind in type(value).__mro__
        for name, member in vars(kind).items()
        if isinstance(member, cached_property)
    }
    return [(name, getattr(value, name, None)) for name in sorted(names - cached)]
