"""Compiled programs are kept in the user's cache folder, unless somebody decided otherwise or it
cannot be written.
"""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from evenly.simulate import program_cache

NAMES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's cache folder, and JAX without settings of its own."""
    before = {name: jax.config.values[name] for name in NAMES}
    monkeypatch.setattr(program_cache, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("EVENLY_COMPILED")
    monkeypatch.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)
    program_cache.compilation_cache.reset_cache()


def chosen() -> str | None:
    program_cache.enable_cache.__wrapped__()
    return jax.config.values["jax_compilation_cache_dir"]


def test_programs_are_kept_in_a_folder_for_this_kind_of_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(program_cache, "LEAST_SECONDS", 0.0)
    place = program_cache.cache_path()
    assert chosen() == str(place)
    assert place.parent == home / "compiled"
    jax.jit(lambda x: x * 3 + 1)(2.0)
    assert list(place.iterdir())


def test_a_program_that_is_only_partly_written_is_compiled(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another process may be writing it. JAX warns; the user is not told of a thing that needs
    nothing done.
    """
    monkeypatch.setattr(program_cache, "LEAST_SECONDS", 0.0)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        chosen()
        jax.jit(lambda x: x * 5 + 2)(2.0)
        entries = [path for path in home.rglob("*-cache") if path.is_file()]
        assert entries
        for path in entries:
            path.write_bytes(path.read_bytes()[:-10])
        jax.clear_caches()
        assert jax.jit(lambda x: x * 5 + 2)(2.0) == 12
    assert [str(one.message) for one in shown] == []


def test_another_version_has_another_folder(home: Path, monkeypatch: pytest.MonkeyPatch):
    here = program_cache.cache_path()
    assert here == program_cache.cache_path()
    monkeypatch.setattr(program_cache.metadata, "version", lambda _: "another")
    assert program_cache.cache_path() != here


@pytest.mark.parametrize("word", ["off", "0", "No"])
def test_it_can_be_turned_off(home: Path, monkeypatch: pytest.MonkeyPatch, word: str):
    monkeypatch.setenv("EVENLY_COMPILED", word)
    assert chosen() is None
    assert not home.exists()


def test_a_folder_that_the_user_chose_stays(home: Path, tmp_path: Path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert chosen() == str(tmp_path / "own")
    assert not home.exists()


def test_a_folder_that_cannot_be_written_is_done_without(home: Path):
    home.write_text("a file where the folder should be")
    assert chosen() is None


def test_how_long_programs_must_take_stays_as_the_user_chose(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "7")
    before = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    chosen()
    assert jax.config.values["jax_persistent_cache_min_compile_time_secs"] == before


def test_the_oldest_go_first(tmp_path: Path):
    for age, name in enumerate(("newest", "middle", "oldest")):
        path = tmp_path / "kind" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(10))
        os.utime(path, (1000 - age, 1000 - age))
    program_cache.shrink_cache(tmp_path, 25)
    assert sorted(path.name for path in (tmp_path / "kind").iterdir()) == ["middle", "newest"]
    program_cache.shrink_cache(tmp_path / "missing", 0)


def test_files_of_just_the_size_stay(tmp_path: Path):
    for age in range(3):
        (tmp_path / str(age)).write_bytes(bytes(10))
        os.utime(tmp_path / str(age), (1000 - age, 1000 - age))
    program_cache.shrink_cache(tmp_path, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_half_a_gigabyte_is_kept_where_the_folder_can_be_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    tidied, asked = [], []
    monkeypatch.setattr(
        program_cache, "shrink_cache", lambda place, most: tidied.append((place, most))
    )
    monkeypatch.setattr(program_cache.os, "access", lambda place, mode: bool(asked.append(mode)))
    assert chosen() is None, "a folder that cannot be written"
    assert asked == [os.W_OK | os.X_OK]
    monkeypatch.setattr(program_cache.os, "access", lambda place, mode: True)
    assert chosen() == str(program_cache.cache_path())
    assert tidied == [(home / "compiled", 536_870_912)]


def test_a_folder_is_named_after_what_the_processor_can_do(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(program_cache, "Path", lambda _: info)
    monkeypatch.setattr(program_cache.platform, "processor", lambda: "some")
    without = program_cache.cache_path()
    names = []
    for text in (
        "speed : 1\nflags : avx\n",
        "speed : 2\nflags : avx\n",
        "speed : 2\nflags : sse\n",
        "Features : neon\n",
        "plain\nother\n",
        "",
    ):
        info.write_text(text)
        names.append(program_cache.cache_path())
    assert names[0] == names[1], "its speed of the moment does not matter"
    assert len({without, *names}) == 6
    monkeypatch.setattr(program_cache.platform, "processor", lambda: "another")
    info.unlink()
    assert program_cache.cache_path() != without
