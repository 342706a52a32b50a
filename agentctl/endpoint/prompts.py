"""Prompts of random content by name: the same name, the same tokens, and nobody's words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentctl.endpoint.client import Dialect

IDS = (300, 1300)  # token ids: no special ones in the vocabularies we know, and in even small ones
# One token each in most vocabularies, with the space before them.
_TEXT = (
    "the of and to in is it you that he was for on are with as his they at be this from have or by one had "
    "not but what all were when we there can an your which their said if do will each about how up out them "
    "then she many some so these would other into has more her two like him see time could no make than "
    "first been its who now people my made over did down only way find use may water long little very "
    "after words called just where most know"
)
WORDS = _TEXT.split()

U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Prompts:
    """Prompts for one run of the program. salt: those of another are others, so that what one left in the
    server's cache is no hit."""

    salt: str
    dialect: Dialect = field(default_factory=Dialect)

    def of(self, pieces: Iterable[tuple[str | int, int]]) -> list[int] | str:
        """Token ids, or as text words that are about as many tokens; pieces as (name, tokens)."""
        pieces = list(pieces)
        if self.dialect.prompts == "tokens":
            values = self._random([name for name, _ in pieces], [tokens for _, tokens in pieces])
            return (values % np.uint64(IDS[1] - IDS[0]) + np.uint64(IDS[0])).tolist()
        ends = np.cumsum([tokens for _, tokens in pieces]) - self.dialect.tokens_around
        words = np.round(np.maximum(ends, 0) / self.dialect.tokens_per_word).astype(np.int64)
        counts = np.diff(words, prepend=0)
        counts[0] = max(1, counts[0])
        values = self._random([name for name, _ in pieces], counts.tolist())
        return " ".join(WORDS[i] for i in (values % np.uint64(len(WORDS))).tolist())

    def _random(self, names: list[str | int], lengths: list[int]) -> U64:
        """64 random bits for each token, piece after piece (SplitMix64 of the name's hash and the place)."""
        seeds = np.array([self._seed(name) for name in names], np.uint64)
        size = np.array(lengths, np.int64)
        place = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        return _mixed(np.repeat(seeds, size) + place.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))

    def _seed(self, name: str | int) -> int:
        digest = hashlib.blake2b(f"{self.salt}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")


def _mixed(z: U64) -> U64:
    """Finaliser of SplitMix64 (Steele, Lea, Flood 2014); wraps."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
