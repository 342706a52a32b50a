"""An event loop whose clock stands still while anything happens and jumps when nothing does.

Servers and clients in one loop on loopback then take exactly the time that they sleep, on any machine.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Selector(selectors.DefaultSelector):
    skipped = 0.0

    def select(self, timeout: float | None = None):
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        ready = super().select(0 if timeout is not None else 1.0)  # loopback delivers at once
        if not ready and timeout is not None:
            self.skipped += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._mine = _Selector()
        super().__init__(self._mine)

    def time(self) -> float:
        return self._mine.skipped


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
