"""The KV blocks of one engine: taken from a queue of free ones, found again by name until they are reused.

vLLM's block pool (V1): a freed block goes to the end of the queue, a sequence's last block first, and keeps
its name; blocks are taken from the front, so the least recently used are lost first, tails before heads.
Several blocks may carry one name: a lookup takes the one cached first, a reuse forgets only its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class BlockPool:
    """All operations take a few array operations for any number of blocks.

    The queue is a log of block numbers; an entry counts only while `_entry` of its block points to it, so
    that taking a block out of the middle is forgetting its entry.
    """

    def __init__(self, n_blocks: int, n_names: int) -> None:
        self.n_blocks = self.n_free = n_blocks
        self._log = np.empty(2 * n_blocks + 64, dtype=np.int32)
        self._log[:n_blocks] = np.arange(n_blocks)
        self._entry = np.arange(n_blocks)  # of a free block: its position in the log; -1: in use
        self._front, self._end = 0, n_blocks
        self._users = np.zeros(n_blocks, dtype=np.int32)
        self._name = np.full(n_blocks, -1, dtype=np.int64)
        self._block = np.full(n_names, -1, dtype=np.int32)  # by name: the block cached first, -1
        self._copies: dict[int, list[int]] = {}  # by name: further blocks, in the order cached
        self._known = np.zeros(n_names, dtype=np.int16)  # copies that the router's index has heard of
        self._news: list[tuple[I64, int]] = []  # distinct names cached (+1), evicted (-1), not yet announced

    def lookup(self, names: I64) -> I32:
        """Blocks of the longest cached beginning of `names`."""
        blocks = self._block[names]
        missing = blocks < 0
        return blocks[: int(missing.argmax())] if missing.any() else blocks

    def n_idle(self, blocks: I32) -> int:
        """How many of `blocks` nobody uses: using them costs free blocks."""
        return int((self._users[blocks] == 0).sum())

    def use(self, blocks: I32) -> None:
        idle = blocks[self._users[blocks] == 0]
        self._entry[idle] = -1
        self.n_free -= idle.size
        self._users[blocks] += 1

    def take(self, n: int) -> I32:
        """The n blocks freed longest ago; they lose their names. n is at most n_free."""
        taken = np.empty(n, dtype=np.int32)
        filled = 0
        while filled < n:
            stop = min(self._front + 2 * (n - filled) + 8, self._end)
            window = self._log[self._front : stop]
            valid = np.flatnonzero(self._entry[window] == np.arange(self._front, stop))[: n - filled]
            taken[filled : filled + valid.size] = window[valid]
            filled += valid.size
            self._front = self._front + int(valid[-1]) + 1 if filled == n else stop
        self._entry[taken] = -1
        self._users[taken] = 1
        self.n_free -= n
        self._forget(taken)
        return taken

    def cache(self, blocks: I32, names: I64) -> None:
        """Give full blocks their names, in this order: from now on they can be found."""
        self._name[blocks] = names
        if (self._block[names] < 0).all() and (names.size == 1 or np.unique(names).size == names.size):
            self._block[names] = blocks
            self._news.append((names, 1))
            return
        self._tell_singly(names, 1)
        for block, name in zip(blocks.tolist(), names.tolist(), strict=True):
            if self._block[name] < 0:
                self._block[name] = block
            else:
                self._copies.setdefault(name, []).append(block)

    def release(self, blocks: I32) -> None:
        """Give back a sequence's blocks, from the first to the last."""
        self._users[blocks] -= 1
        idle = blocks[self._users[blocks] == 0][::-1]
        if self._end + idle.size > self._log.size:
            self._compact()
        stop = self._end + idle.size
        self._log[self._end : stop] = idle
        self._entry[idle] = np.arange(self._end, stop)
        self._end = stop
        self.n_free += idle.size

    def announce(self) -> None:
        """Tell the router's index what was cached and evicted since the last announcement."""
        for names, change in self._news:
            self._known[names] += change
        self._news.clear()

    def n_known(self, names: I64) -> int:
        """Length of the beginning of `names` that the router's index knows to be here."""
        missing = self._known[names] == 0
        return int(missing.argmax()) if missing.any() else names.size

    def _forget(self, blocks: I32) -> None:
        names = self._name[blocks]
        named = names >= 0
        names, blocks = names[named], blocks[named]
        if not names.size:
            return
        self._name[blocks] = -1
        if not self._copies:
            self._block[names] = -1
            self._news.append((names, -1))
            return
        self._tell_singly(names, -1)
        for name, block in zip(names.tolist(), blocks.tolist(), strict=True):
            copies = self._copies.get(name)
            if self._block[name] != block:
                assert copies is not None, "a named block is either the first of its name or a copy"
                copies.remove(block)
            else:
                self._block[name] = copies.pop(0) if copies else -1
            if copies is not None and not copies:
                del self._copies[name]

    def _tell_singly(self, names: I64, change: int) -> None:
        """News of names that may repeat."""
        self._news += [(names[i : i + 1], change) for i in range(names.size)]

    def _compact(self) -> None:
        window = self._log[self._front : self._end]
        live = window[self._entry[window] == np.arange(self._front, self._end)]
        self._log[: live.size] = live
        self._entry[live] = np.arange(live.size)
        self._front, self._end = 0, live.size
