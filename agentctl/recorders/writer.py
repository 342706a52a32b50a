"""One JSON line a step, appended to a file; an engine must not fail because its step log does."""

from __future__ import annotations

import json
import os
from typing import IO, Any

PATH_VARIABLE = "AGENTCTL_STEPS"  # where the steps go; {pid} and {engine} are filled in
DEFAULT_PATH = "agentctl-steps-{engine}-{pid}.jsonl"
SCHEMA = "agentctl/steps/1"


class StepWriter:
    """Appends rows of agentctl/steps/1 to a file that it opens at the first; a failed write is its last."""

    def __init__(self, engine: int = 0) -> None:
        path = os.environ.get(PATH_VARIABLE) or DEFAULT_PATH
        self.path = path.replace("{pid}", str(os.getpid())).replace("{engine}", str(engine))
        self.engine = engine
        self._file: IO[str] | None = None
        self._failed = False

    def write(self, row: dict[str, Any]) -> None:
        if self._failed:
            return
        try:
            if self._file is None:
                self._file = open(self.path, "a", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115
            self._file.write(json.dumps({"schema": SCHEMA, "engine": self.engine, **row}) + "\n")
        except OSError:  # a full disk: the engine goes on without its log
            self._failed = True
