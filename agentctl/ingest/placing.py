"""Text onto the token grid: from trees of pieces whose bytes are known to blocks of so many tokens.

A request reports how many tokens its prompt has, not where they are. In the order of the rows, the first
request that holds a piece of text decides where it lies: its tokens, less those up to the deepest piece that
has its place already, are spread over the bytes that are new. So every prompt ends where it says, and what
lies between two known ends is off by no more than the bytes a token differ inside. Rows that report nothing
come last and take the dataset's mean bytes a token for what is new in them.

Block k of a prompt is named by the piece that holds its last token (and k): two prompts share a block exactly
when they share that piece. Only full blocks are made. The result is a tree as any log of block ids gives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.trie import UNKNOWN_TIP

BYTES_PER_TOKEN = 4.0  # of English text and code, where no request of the log reports its tokens
_MAX_TOKENS_PER_BYTE = 16  # beyond this and the slack a count is no count of this text
_SLACK_TOKENS = 1 << 17  # images and files that stand behind a name


class Pieces(NamedTuple):
    """A tree of pieces of text (index 0 is its root) and the last piece of every row, in the rows' order."""

    parent: NDArray[np.uint32]
    hash: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    tips: NDArray[np.uint32]


@dataclass
class Grid:
    """The tree of blocks. parent and hash describe its nodes, `tips` the last block of each row."""

    parent: NDArray[np.uint32]
    hash: NDArray[np.uint64]
    tips: NDArray[np.uint32]
    prompt_tokens: NDArray[np.int64]  # of each row, estimates filled in
    is_estimated: NDArray[np.bool_]
    n_clipped: int  # rows that report fewer tokens than the text that they share has
    n_absurd: int  # rows whose tokens cannot be those of their text: their blocks are unknown


def place(pieces: Pieces, prompt: NDArray[np.int64], block_tokens: int, default_size: float) -> Grid:
    """Blocks of `block_tokens` for rows with `prompt` tokens (-1 unknown).

    default_size: bytes (or units of whatever `sizes` counts) a token, where no row knows its tokens
    """
    tips, prompt = pieces.tips.copy(), prompt.copy()
    of_row = _lengths(pieces.parent, pieces.sizes)[np.where(tips == UNKNOWN_TIP, 0, tips)]
    absurd = (tips != UNKNOWN_TIP) & (prompt > _MAX_TOKENS_PER_BYTE * of_row + _SLACK_TOKENS)
    tips[absurd] = UNKNOWN_TIP
    reported = (tips != UNKNOWN_TIP) & (prompt >= 0)
    n_tokens, size = int(prompt[reported].sum()), int(of_row[reported].sum())
    per_unit = n_tokens / size if n_tokens and size else 1.0 / default_size
    ends = np.full(pieces.parent.size, -1, dtype=np.int64)
    ends[0] = 0
    estimated = (tips != UNKNOWN_TIP) & (prompt < 0)
    n_clipped = _spread(pieces.parent, pieces.sizes, tips, prompt, reported, 0.0, ends)
    _spread(pieces.parent, pieces.sizes, tips, prompt, estimated, per_unit, ends)
    n_blocks = np.where(tips == UNKNOWN_TIP, 0, prompt // block_tokens)
    first, last, n_regular = _lay_out(pieces.parent, ends, block_tokens)
    n_extra = int(
        np.maximum(n_blocks - ends[np.where(tips == UNKNOWN_TIP, 0, tips)] // block_tokens, 0).sum()
    )
    parent = np.zeros(n_regular + n_extra + 1, dtype=np.uint32)
    hash_ = np.zeros(parent.size, dtype=np.uint64)
    _name_blocks(pieces.parent, pieces.hash, ends, block_tokens, first, last, parent, hash_)
    block_tips = np.full(tips.size, UNKNOWN_TIP, dtype=np.uint32)
    n = _read_off(pieces.hash, tips, ends, block_tokens, n_blocks, last, parent, hash_, n_regular, block_tips)
    return Grid(parent[: n + 1], hash_[: n + 1], block_tips, prompt, estimated, n_clipped, int(absurd.sum()))


@njit(cache=True, nogil=True)
def mix(x):  # type: ignore[no-untyped-def]
    """splitmix64's finaliser: another number for every number, without order."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def numbered_hashes(n):  # type: ignore[no-untyped-def]
    """Hashes that say nothing but the number of their node, for nodes 0 to n - 1."""
    hashes = np.zeros(n, dtype=np.uint64)
    for node in range(1, n):
        hashes[node] = mix(np.uint64(node))
    return hashes


@njit(cache=True, nogil=True)
def _lengths(parent, sizes):  # type: ignore[no-untyped-def]
    """Size of the text from the root to the end of each node."""
    lengths = np.zeros(parent.size, dtype=np.int64)
    for node in range(1, parent.size):
        lengths[node] = lengths[parent[node]] + sizes[node]
    return lengths


@njit(cache=True, nogil=True)
def _spread(parent, sizes, tips, prompt, chosen, per_unit, ends):  # type: ignore[no-untyped-def]
    """Give the nodes of the chosen rows the token at which each ends, in place; counts clipped rows.

    per_unit > 0: the rows' prompts are unknown, and estimated in place.
    """
    path = np.empty(1024, dtype=np.uint32)
    n_clipped = 0
    for row in range(tips.size):
        if not chosen[row]:
            continue
        n, size, node = 0, 0, tips[row]
        while ends[node] < 0:
            if n == path.size:
                path = np.concatenate((path, np.empty_like(path)))
            path[n] = node
            n += 1
            size += sizes[node]
            node = parent[node]
        base = ends[node]
        if per_unit > 0:
            prompt[row] = base + np.int64(np.floor(size * per_unit + 0.5))
        room = prompt[row] - base
        n_clipped += room < 0
        room = max(room, 0)
        done = 0
        for k in range(n - 1, -1, -1):
            done += sizes[path[k]]
            ends[path[k]] = base + room * done // size
    return n_clipped


@njit(cache=True, nogil=True)
def _lay_out(parent, ends, block_tokens):  # type: ignore[no-untyped-def]
    """First and last block that end inside each piece; a piece without one has the last of its parent."""
    first = np.zeros(parent.size, dtype=np.uint32)
    last = np.zeros(parent.size, dtype=np.uint32)
    n = 0
    for node in range(1, parent.size):
        above = parent[node]
        last[node] = last[above]
        n_new = ends[node] // block_tokens - ends[above] // block_tokens
        if ends[node] >= 0 and n_new > 0:
            first[node] = n + 1
            n += n_new
            last[node] = n
    return first, last, n


@njit(cache=True, nogil=True)
def _name_blocks(parent, hash_, ends, block_tokens, first, last, block_parent, block_hash):  # type: ignore[no-untyped-def]
    for node in range(1, parent.size):
        if first[node] == 0:
            continue
        above = last[parent[node]]
        k = ends[parent[node]] // block_tokens
        for block in range(first[node], np.int64(last[node]) + 1):
            k += 1
            block_parent[block] = above
            block_hash[block] = mix(hash_[node] + np.uint64(k))
            above = block


@njit(cache=True, nogil=True)
def _read_off(hash_, tips, ends, block_tokens, n_blocks, last, parent, block_hash, n, block_tips):  # type: ignore[no-untyped-def]
    """The last block of each row. Returns the number of blocks.

    A row may report another count than the one that placed its last piece: blocks that it lacks are left out,
    those that it has more hang below the last one, in a chain of the piece's own.
    """
    n_regular = n
    n_extra = parent.size - 1 - n_regular
    follower = np.zeros(n_extra + 1, dtype=np.uint32)  # of an extra block, the next one
    extra = np.zeros(ends.size if n_extra else 1, dtype=np.uint32)  # by piece, its first extra block
    for row in range(tips.size):
        if tips[row] == UNKNOWN_TIP:
            continue
        piece = tips[row]
        block = last[piece]
        k = ends[piece] // block_tokens
        while k > n_blocks[row]:
            block = parent[block]
            k -= 1
        while k < n_blocks[row]:
            k += 1
            known = follower[block - n_regular] if block > n_regular else extra[piece]
            if known == 0:
                n += 1
                known = n
                parent[n] = block
                block_hash[n] = mix(hash_[piece] + np.uint64(k))
                if block > n_regular:
                    follower[block - n_regular] = n
                else:
                    extra[piece] = n
            block = known
        block_tips[row] = block
    return n


def apart(pieces: Pieces, group: NDArray[np.integer], names: NDArray[np.uint64]) -> Pieces:
    """Trees that share nothing between groups of rows (models): `group` is 0, 1, ... by row.

    names: a number for each group that is the same in every dataset, mixed into the hashes
    """
    if names.size < 2:
        return pieces
    parents, hashes, sizes = [np.zeros(1, np.uint32)], [np.zeros(1, np.uint64)], [np.zeros(1, np.int64)]
    tips, n = np.full(pieces.tips.size, UNKNOWN_TIP, dtype=np.uint32), 0
    for number, name in enumerate(names):
        rows = np.flatnonzero((group == number) & (pieces.tips != UNKNOWN_TIP))
        used, tips[rows] = _copy(pieces.parent, pieces.tips[rows], n)
        new_number = np.zeros(pieces.parent.size, dtype=np.uint32)
        new_number[used] = np.arange(n + 1, n + 1 + used.size)
        parents.append(new_number[pieces.parent[used]])
        hashes.append(_mixed(pieces.hash[used], name))
        sizes.append(pieces.sizes[used])
        n += used.size
    return Pieces(np.concatenate(parents), np.concatenate(hashes), np.concatenate(sizes), tips)


@njit(cache=True, nogil=True)
def _copy(parent, tips, n):  # type: ignore[no-untyped-def]
    """The nodes that `tips` use, ascending, and the tips numbered among them from n + 1."""
    is_used = np.zeros(parent.size, dtype=np.bool_)
    for tip in tips:
        node = tip
        while node != 0 and not is_used[node]:
            is_used[node] = True
            node = parent[node]
    used = np.flatnonzero(is_used)
    number = np.zeros(parent.size, dtype=np.uint32)
    for k in range(used.size):
        number[used[k]] = n + 1 + k
    return used, number[tips]


@njit(cache=True, nogil=True)
def _mixed(hashes, name):  # type: ignore[no-untyped-def]
    return np.array([mix(value ^ name) for value in hashes], dtype=np.uint64)
