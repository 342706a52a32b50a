"""Turns by the definitions: every row looks at every earlier row. To be read, not to be fast."""

from __future__ import annotations

from math import isnan, nan

from oracles.sessions import path

from agentctl.ingest.sessions import NO_TIP
from agentctl.ingest.turns import PARENT_MISSING, RESUMED_TOKENS, Log
from agentctl.schema import GAP_KINDS, STATUSES

FAILED = ("error", "aborted", "timeout", "rejected")


class SlowTurns:
    """What `order_turns` says, as lists: parent, turn, attempt, origin, after, gap, kind."""

    def __init__(self, log: Log, parent_node: list[int], block_tokens: int, resolution: float) -> None:
        self.log, self.resolution = log, resolution
        n = len(log.session)
        self.line = [(int(log.session[r]), int(log.agent[r])) for r in range(n)]
        self.status = [STATUSES[code] for code in log.status]
        self.end = [float(log.end[r]) if log.end[r] >= log.arrival[r] else nan for r in range(n)]
        self.nodes = [path(int(tip), parent_node) if tip != NO_TIP else [] for tip in log.tip]
        self.block_tokens = block_tokens
        self.spawn = [self.pointer(log.spawn, r) for r in range(n)]
        named = [self.pointer(log.named_parent, r) for r in range(n)]
        self.named = [named[r] if named[r] != self.spawn[r] else -1 for r in range(n)]
        self.twin = [self.find_twin(r) for r in range(n)]
        self.retry_of = [self.find_failed_attempt(r) for r in range(n)]
        self.claim = [self.named[r] if self.named[r] >= 0 else self.extended(r) for r in range(n)]
        self.parent: list[int] = []
        self.turn: list[int] = []
        self.attempt: list[int] = []
        for r in range(n):
            self.parent.append(self.find_parent(r))
            self.count(r)
        self.origin = [self.find_origin(r) for r in range(n)]
        released = [self.find_release(r) for r in range(n)]
        self.after, self.gap, self.kind = (list(column) for column in zip(*released, strict=True))

    def pointer(self, column, r: int) -> int:
        return (
            int(column[r])
            if 0 <= column[r] < r and self.log.session[column[r]] == self.log.session[r]
            else -1
        )

    def before(self, r: int) -> list[int]:
        return [q for q in range(r) if self.line[q] == self.line[r]]

    def is_fit(self, r: int) -> bool:
        return self.status[r] not in ("error", "rejected")

    def blocks(self, r: int, tokens: int) -> list[int]:
        return self.nodes[r][: max(tokens, 0) // self.block_tokens]

    def find_twin(self, r: int) -> int:
        log = self.log
        if log.message[r] >= 0:
            return max([q for q in self.before(r) if log.message[q] == log.message[r]], default=-1)
        same = [q for q in self.before(r) if log.tip[q] == log.tip[r] and log.prompt[q] == log.prompt[r]]
        if not same or log.prompt[r] <= 0:
            return -1
        return same[-1] if self.nodes[r] or self.status[same[-1]] in FAILED else -1

    def find_failed_attempt(self, r: int) -> int:
        if self.twin[r] >= 0 and self.status[self.twin[r]] in FAILED:
            return self.twin[r]
        last = self.before(r)[-1:]
        is_blank = last and self.log.prompt[last[0]] <= 0 and self.log.message[last[0]] < 0
        return last[0] if is_blank and self.status[last[0]] in FAILED else -1

    def is_extended_by(self, q: int, r: int) -> bool:
        """Does r's prompt begin with q's full blocks, not counting the last token of q's prompt?"""
        held = self.blocks(q, int(self.log.prompt[q]) - 1)
        mine = self.blocks(r, int(self.log.prompt[r]))
        return 0 < self.log.prompt[q] < self.log.prompt[r] and mine[: len(held)] == held

    def extended(self, r: int) -> int:
        if not self.before(r) and self.spawn[r] >= 0:
            spawner = self.spawn[r]
            shared = self.blocks(spawner, int(self.log.prompt[spawner]) - 1)
            return spawner if shared and self.is_extended_by(spawner, r) else -1
        fitting = [q for q in self.before(r) if self.is_fit(q) and self.is_extended_by(q, r)]
        reach = [(len(self.blocks(q, int(self.log.prompt[q]) - 1)), q) for q in fitting]
        return max(reach)[1] if reach else -1

    def find_parent(self, r: int) -> int:
        if self.twin[r] >= 0 and self.named[r] in (-1, self.twin[r]):
            return self.parent[self.twin[r]]
        if self.claim[r] >= 0:
            return self.claim[r]
        if self.retry_of[r] >= 0:
            return self.parent[self.retry_of[r]]
        fit = [q for q in self.before(r) if self.is_fit(q)]
        if fit and fit[-1] not in self.claim:
            mine, other = self.nodes[r][:1], self.nodes[fit[-1]][:1]
            if not mine or not other or mine == other:
                return fit[-1]
        return -1

    def count(self, r: int) -> None:
        turn, attempt = max([self.turn[q] + 1 for q in self.before(r)], default=0), 0
        if self.retry_of[r] >= 0:
            turn, attempt = self.turn[self.retry_of[r]], self.attempt[self.retry_of[r]] + 1
        self.turn.append(int(self.log.named_turn[r]) if self.log.named_turn[r] >= 0 else turn)
        self.attempt.append(attempt)

    def find_origin(self, r: int) -> str:
        log, parent = self.log, self.parent[r]
        if parent >= 0:
            same_line = self.line[parent] == self.line[r]
            return "compacted" if same_line and 0 < log.prompt[r] < log.prompt[parent] else "new"
        if log.named_parent[r] == PARENT_MISSING:
            return "orphan"
        long = log.n_assistant[r] < 0 and log.prompt[r] > RESUMED_TOKENS
        return "resumed" if log.spawn[r] < 0 and (log.resumed[r] or log.n_assistant[r] > 0 or long) else "new"

    def had_ended(self, r: int, rows: list[int]) -> int:
        ended = [(self.end[q], q) for q in rows if self.end[q] <= self.log.arrival[r] + self.resolution]
        return max(ended)[1] if ended else -1

    def find_release(self, r: int) -> tuple[int, float, str | None]:
        arrival, previous = self.log.arrival, (self.before(r) or [-1])[-1]
        wanted = [self.retry_of[r], self.parent[r], previous, self.spawn[r]]
        predecessor = next((q for q in wanted if q >= 0), -1)
        if predecessor >= 0 and self.end[predecessor] > arrival[r] + self.resolution:
            return predecessor, arrival[r] - arrival[predecessor], "overlap"
        after = self.had_ended(r, [q for q in range(r) if self.line[q][0] == self.line[r][0]])
        if self.log.agent[r] >= 0:
            spawner = [self.spawn[r]] if self.spawn[r] >= 0 else []
            own = [self.had_ended(r, self.before(r)), self.had_ended(r, spawner)]
            after = next((q for q in own if q >= 0), after)
        if after < 0:
            return -1, nan, None
        gap = max(float(arrival[r]) - self.end[after], 0.0)
        if after == previous and not isnan(self.log.think[r]):
            gap = float(self.log.think[r])
        if self.retry_of[r] >= 0:
            return after, gap, "retry"
        if self.line[after] != self.line[r]:
            return after, gap, "subagent"
        return after, gap, GAP_KINDS[self.log.stop[after]] if self.log.stop[after] >= 0 else "unknown"
