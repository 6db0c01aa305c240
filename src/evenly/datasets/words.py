"""Words as numbers: 0 is padding, 1 an unknown word, then the most frequent words."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

PADDING, UNKNOWN = 0, 1
SPECIAL = ("(padding)", "(unknown)")
_WORD = re.compile(r"[\w']+|[.,!?;]")


def split_words(text: str) -> list[str]:
    """The words and marks of a text in small letters, cut as LEAF cuts them."""
    return _WORD.findall(text.lower())


def vocabulary(texts: Iterable[Sequence[str]], size: int) -> tuple[str, ...]:
    """Padding, unknown and the `size` most frequent words; equally frequent ones by name, so that no order of rows matters."""
    counts = Counter(word for text in texts for word in text)
    return (*SPECIAL, *sorted(counts, key=lambda word: (-counts[word], word))[:size])


def numbers(texts: Iterable[Sequence[str]], words: tuple[str, ...]) -> list[np.ndarray]:
    """The number of every word of every text, int32."""
    index = {word: i for i, word in enumerate(words)}
    return [np.array([index.get(word, UNKNOWN) for word in text], np.int32) for text in texts]


def table(texts: Sequence[np.ndarray], length: int) -> np.ndarray:
    """The first `length` numbers of every text, padded at the end: int32 [texts, length]."""
    out = np.full((len(texts), length), PADDING, np.int32)
    for row, text in zip(out, texts, strict=True):
        row[: len(text)] = text[:length]
    return out
