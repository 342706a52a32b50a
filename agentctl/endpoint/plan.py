"""What is asked of an endpoint to tell its batch-time coefficients apart: a plan, and no request sent yet.

cold      prompts never seen, one at a time: fixed cost, slope and squares of a prefill
suffix    a prefix that is cached and a fresh suffix: pairs and past tell each other apart
plateau   n decodes at once on n distinct contexts (over one shared prompt a decode looks several times
          cheaper: kernels read shared KV once); widths at usual sizes of captured graphs and between them
inject    a prefill beside running decodes: batches that are mixed
mixed     two-turn sessions with random starts: never fitted, it judges
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from agentctl.errors import UsageError

COLD = (8, 32, 64, 128, 256, 512, 1024, 1536, 2048, 4096)
SUFFIX = ((512, (32, 256)), (2048, (32, 256, 768)), (3584, (32, 384)))
PLATEAUS = (
    (1, 64), (8, 64), (4, 1024), (1, 3584), (2, 2048), (16, 64), (6, 512), (3, 64), (8, 1024), (12, 256),
    (9, 64),
)  # fmt: skip
# Decodes, context, prefill beside them; the long ones show how many batches a prompt is cut into.
INJECTED = ((1, 512, 256), (4, 1024, 128), (8, 512, 384), (1, 64, 1500), (1, 64, 3500))
MIXED_SESSIONS = 14
WINDOW = 20  # tokens of a plateau in which all are decoding
USUAL_S = (
    0.16  # first token of 512 fresh ones: the mixed load then keeps an engine busy about half of the time
)
SLOWEST_CHUNK = 256  # tokens that any engine prefills in a step: how long a plateau takes to fill
DEFAULT_REQUESTS, DEFAULT_SECONDS = 200, 300.0


class Piece(NamedTuple):
    """`tokens` random tokens named by `salt`: the same name, the same tokens."""

    salt: str
    tokens: int


class Probe(NamedTuple):
    """One request. `after_s`: when it is sent, from the start of its phase, by an engine of USUAL_S; a slower
    one is given more time. `carrier_tokens` > 0: not before the phase's others have that many tokens each."""

    name: str
    role: str  # warm | cold | setup | suffix | decode | carrier | injected | mixed
    prompt: tuple[Piece, ...]
    max_tokens: int
    after_s: float = 0.0
    carrier_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        return sum(piece.tokens for piece in self.prompt)


@dataclass(frozen=True)
class Step:
    """Requests that belong together: phases one after the other, those of a phase at once."""

    name: str
    kind: str  # warm | cold | suffix | plateau | inject | mixed
    phases: tuple[tuple[Probe, ...], ...]

    @property
    def n_requests(self) -> int:
        return sum(map(len, self.phases))

    def seconds(self, per_token: float, per_step: float, pace: float) -> float:
        """About how long it takes where a prompt's token and a decode's step take so long."""
        probes = [probe for phase in self.phases for probe in phase]
        computed = sum(probe.prompt[-1].tokens for probe in probes) * per_token
        decoded = sum(max(probe.max_tokens for probe in phase) - 1 for phase in self.phases) * per_step
        return max(computed + decoded, pace * max(probe.after_s for probe in probes))


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    seconds: float  # budget

    @property
    def n_requests(self) -> int:
        return sum(step.n_requests for step in self.steps)

    @property
    def digest(self) -> str:
        """Names the plan: measured rows of another one cannot be continued."""
        text = json.dumps([asdict(step) for step in self.steps], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_plan(
    requests: int = DEFAULT_REQUESTS,
    seconds: float = DEFAULT_SECONDS,
    max_context: int = 4352,
    max_width: int = 16,
    session_gap_s: float = 0.4,
    seed: int = 0,
) -> Plan:
    """The plan for a budget: fewer repeats, then fewer cells, where `requests` is short.

    max_context    tokens of prompt and output that the engine takes
    session_gap_s  mean time between the starts of the mixed load's sessions, by an engine of USUAL_S
    Raises UsageError for a budget that no plan meets.
    """
    for repeats, sessions, widest in (
        (3, MIXED_SESSIONS, 16), (2, 12, 16), (2, 8, 12), (1, 6, 8), (1, 4, 4),
    ):  # fmt: skip
        steps = _steps(repeats, sessions, min(widest, max_width), max_context, session_gap_s, seed)
        plan = Plan(steps, seconds)
        if plan.n_requests <= requests:
            return plan
    raise UsageError(
        f"allows {requests} requests", place="--budget", expected=f"at least {plan.n_requests} requests"
    )


def _steps(
    repeats: int, sessions: int, widest: int, max_context: int, gap_s: float, seed: int
) -> tuple[Step, ...]:
    random = np.random.default_rng(seed)
    cold = [
        _alone(f"cold-{tokens}-{n}", "cold", tokens)
        for n in range(repeats)
        for tokens in random.permutation([one for one in COLD if one < max_context]).tolist()
    ]
    suffix = [_suffixes(past, news) for past, news in SUFFIX if past + max(news) < max_context]
    plateaus = [_plateau(n, context) for n, context in PLATEAUS if n <= widest]
    injected = [_injected(*one) for one in INJECTED if one[0] <= widest]
    fits = [step for step in (*plateaus, *injected, *suffix) if _longest(step) <= max_context]
    others = [fits[i] for i in random.permutation(len(fits)).tolist()]
    return (*_warm_up(), *_spread(cold, others), _mixed(sessions, gap_s, max_context, random))


def _spread(many: list[Step], few: list[Step]) -> list[Step]:
    """Both, evenly: a run that is cut short has some of each."""
    places = [(i + 0.5) / len(many) for i in range(len(many))]
    places += [(i + 0.4) / len(few) for i in range(len(few))]
    both = sorted(zip(places, (*many, *few), strict=True), key=lambda pair: pair[0])
    return [step for _, step in both]


def _longest(step: Step) -> int:
    return max(probe.prompt_tokens + probe.max_tokens for phase in step.phases for probe in phase)


def _alone(name: str, role: str, tokens: int, output: int = 1) -> Step:
    return Step(name, role, ((Probe(name, role, (Piece(name, tokens),), output),),))


def _warm_up() -> list[Step]:
    """Lazy compilation, graphs, connections, after the trials that found how to ask (dialect.py)."""
    return [_alone("warm-1", "warm", 512), _alone("warm-2", "warm", 200, 8)]


def _suffixes(past: int, news: tuple[int, ...]) -> Step:
    prefix = Piece(f"suffix-{past}", past)
    phases = [(Probe(f"suffix-{past}-setup", "setup", (prefix,), 1),)]
    for new in news:
        name = f"suffix-{past}-{new}"
        phases.append((Probe(name, "suffix", (prefix, Piece(name, new)), 1),))
    return Step(f"suffix-{past}", "suffix", tuple(phases))


def _plateau(n: int, context: int) -> Step:
    name = f"plateau-{n}-{context}"
    output = WINDOW + 4 + -(-(n - 1) * context // SLOWEST_CHUNK)
    probes = (Probe(f"{name}-{i}", "decode", (Piece(f"{name}-{i}", context),), output) for i in range(n))
    return Step(name, "plateau", (tuple(probes),))


def _injected(n: int, context: int, tokens: int) -> Step:
    name = f"inject-{n}-{context}-{tokens}"
    output = WINDOW + -(-(n * context + tokens) // SLOWEST_CHUNK)
    carriers = (Probe(f"{name}-{i}", "carrier", (Piece(f"{name}-{i}", context),), output) for i in range(n))
    beside = Probe(f"{name}-in", "injected", (Piece(f"{name}-in", tokens),), 1, carrier_tokens=5)
    return Step(name, "inject", ((*carriers, beside),))


def _mixed(sessions: int, gap_s: float, max_context: int, random: np.random.Generator) -> Step:
    """Sessions of two turns; the second one's prompt begins with the first one's."""
    starts = np.cumsum(random.exponential(gap_s, sessions))
    probes = []
    for i, start in enumerate(starts.tolist()):
        tokens = int(min(random.choice((128, 320, 768, 1536)), max_context // 2))
        first = Piece(f"mixed-{i}", tokens)
        second = Piece(f"mixed-{i}-next", int(random.choice((48, 160, 400))))
        outputs = random.choice((8, 16, 32), 2).tolist()
        pause = float(gap_s * random.uniform(2, 5))
        probes.append(Probe(f"mixed-{i}-0", "mixed", (first,), outputs[0], start))
        if tokens + second.tokens + outputs[1] <= max_context:
            probes.append(Probe(f"mixed-{i}-1", "mixed", (first, second), outputs[1], start + pause))
    return Step("mixed", "mixed", (tuple(sorted(probes, key=lambda one: one.after_s)),))
