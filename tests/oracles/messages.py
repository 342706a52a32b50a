"""Sessions from lists of messages by the definition: each is compared with that of every earlier request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan, nan

import numpy as np
from oracles.tries import plant

from agentctl.ingest.message_chains import RETRY_WITHIN, MessageLog


@dataclass
class Call:
    """One request; messages that begin with "a" are answers of an assistant."""

    messages: tuple[str, ...]
    arrival: float
    end: float = nan
    reply: str | None = None
    status: str = "ok"  # ok, error or aborted
    party: int = 0
    prompt: int = -1
    calls_tool: bool = False
    truth: tuple[int, int] = field(default=(-1, -1))  # session and turn

    @property
    def assistants(self) -> int:
        return sum(message.startswith("a") for message in self.messages)


def message_log(calls: Sequence[Call]) -> tuple[MessageLog, np.ndarray]:
    """The same requests as arrays, and the tree of their messages."""
    ids = {"cache group": 0}
    lists = [[0] + [ids.setdefault(m, len(ids)) for m in call.messages] for call in calls]
    with_reply = [
        [*messages, ids.setdefault(call.reply, len(ids))]
        for messages, call in zip(lists, calls, strict=True)
        if call.reply is not None
    ]
    tree = plant([*lists, *with_reply])
    tips = tree.tip.astype(np.int64)
    reply = np.full(len(calls), -1, np.int64)
    reply[[call.reply is not None for call in calls]] = tips[len(calls) :]
    log = MessageLog(
        node=tips[: len(calls)],
        reply=reply,
        party=np.array([call.party for call in calls], np.int64),
        arrival=np.array([call.arrival for call in calls], float),
        end=np.array([call.end for call in calls], float),
        assistants=np.array([call.assistants for call in calls], np.int64),
        prompt=np.array([call.prompt for call in calls], np.int64),
        failed=np.array([call.status != "ok" for call in calls], bool),
        unanswered=np.array([call.status == "error" for call in calls], bool),
        calls_tool=np.array([call.calls_tool for call in calls], bool),
    )
    return log, tree.parent


class SlowChains:
    """parent and retry_of of every call, -1 where there is none; compaction is left out."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.parent: list[int] = []
        self.retry_of: list[int] = []
        for row in range(len(calls)):
            retry = self.failed_twin(row, calls[row].messages)
            self.retry_of.append(retry)
            self.parent.append(-1 if retry >= 0 else self.find_parent(row))

    def earlier(self, row: int) -> list[int]:
        return [q for q in range(row) if self.calls[q].party == self.calls[row].party]

    def has_ended(self, other: int, row: int) -> bool:
        end = self.calls[other].end
        return isnan(end) or end <= self.calls[row].arrival

    def is_continued(self, other: int) -> bool:
        return other in self.parent or other in self.retry_of

    def failed_twin(self, row: int, messages: tuple[str, ...]) -> int:
        twins = [
            q
            for q in self.earlier(row)
            if self.calls[q].messages == messages
            and self.calls[q].status != "ok"
            and self.has_ended(q, row)
            and not self.is_continued(q)
        ]
        if twins and self.calls[row].arrival - self.calls[twins[-1]].arrival <= RETRY_WITHIN:
            return twins[-1]
        return -1

    def find_parent(self, row: int) -> int:
        mine = self.calls[row].messages
        for n in range(len(mine), 0, -1):
            begin = mine[:n]
            usable = [q for q in self.earlier(row) if self.calls[q].status != "error"]
            answered = [
                q
                for q in usable
                if self.calls[q].reply is not None and (*self.calls[q].messages, self.calls[q].reply) == begin
            ]
            if answered:
                return self.best(answered, row)
            if n == len(mine) or not any(self.calls[q].messages == begin for q in self.earlier(row)):
                continue
            if sum(m.startswith("a") for m in begin) < self.calls[row].assistants:
                asked = [q for q in usable if self.calls[q].messages == begin]
                if asked:
                    return self.best(asked, row)
            elif n > 1 and (failed := self.failed_twin(row, begin)) >= 0:
                return failed
        return -1

    def best(self, rows: list[int], row: int) -> int:
        return max(rows, key=lambda q: (self.has_ended(q, row), not self.is_continued(q), q))
