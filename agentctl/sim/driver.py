"""One run: a workload replayed on a cluster under a policy. The simulator knows no policy by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from agentctl.cluster import Cluster, check_simulated, own_index
from agentctl.errors import AgentctlError, ConfigError, UsageError
from agentctl.sim import energy, fleet, keeping, placing, pooled, scheduler, sglang, tiered
from agentctl.sim.arrivals import Arrivals, make_arrivals
from agentctl.sim.bound import blame, kind_of, wrong_kind
from agentctl.sim.compiled import Rules, compile_policy, is_compiled, pieces
from agentctl.sim.content import Content, compile_content
from agentctl.sim.fleet_checks import check_fleet, lend_scratch
from agentctl.sim.fleet_state import MOST_SEEN
from agentctl.sim.make_state import OwnIndex, common_block, make_limits, make_state
from agentctl.sim.outcome import Outcome
from agentctl.sim.outcome_of import outcome_of
from agentctl.sim.pair_state import has_roles
from agentctl.sim.samples import first_samples, sample_from
from agentctl.sim.sight import SEES_HITS, Sight, sight_of
from agentctl.sim.splitting import both, check_sides, is_split, side_of
from agentctl.sim.state import ENDED, LOST_HOLDS, OUT_OF_KV, STOP, State
from agentctl.sim.view import View
from agentctl.workload import Requests, Workload

Progress = Callable[[float, str], None]
WATCH_S = 0.1
GoOn = Callable[..., bool]  # see Replay


class Policy(Protocol):
    """What the driver needs of a policy (agentctl.policies.base.Policy has it)."""

    @property
    def name(self) -> str: ...
    @property
    def choose(self) -> Callable[[View, Requests, int, Any], int]: ...
    @property
    def my(self) -> Any: ...


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    seed: int = 0,
    concurrency: int | None = None,
    progress: Progress | None = None,
    observed: bool = False,
    audits: bool = False,
) -> Outcome:
    """Replay `workload` on `cluster` with `policy` choosing an engine for every request.

    concurrency  sessions at a time; needed by a workload of replay closed-loop, refused by others
    progress     called now and then with the share of requests that have ended
    observed     the outcome also has what costs extra: samples over time, and what requests share
    audits       of a fleet: the outcome has what every estimator says of the engine that a request is sent to

    Raises ConfigError for what cannot be simulated and for a policy that names no engine, UsageError for a
    concurrency that does not fit the replay mode.
    """
    replay = begin(workload, cluster, policy, seed, concurrency, audits)
    if observed:
        sample_from(replay.s, *first_samples(workload.requests.arrival, concurrency))
    _run(replay, progress)
    return outcome_of(workload, cluster, replay, observed)


@dataclass(frozen=True)
class Replay:
    """A replay under way.

    go_on(until, stop_at, held, engine) takes it to where `until` requests have ended, or to where the router
    has to place request `stop_at`, and says whether everything has ended. Whoever stopped it at a request
    then gives it as `held`, to be sent to `engine`. All but `until` may be left out.
    """

    content: Content
    s: State
    arrivals: Arrivals
    requests: Requests
    rules: Rules
    policy: Policy
    seed: int
    go_on: GoOn
    lent: tuple[Any, ...] = ()  # what the state only has the address of


def begin(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    seed: int,
    concurrency: int | None,
    audits: bool = False,
) -> Replay:
    """The cluster before the first request. Raises as `simulate`."""
    check_simulated(cluster)
    check_fleet(workload, cluster, policy, audits)
    if (workload.replay == "closed-loop") != (concurrency is not None):
        raise UsageError(
            f"replay {workload.replay} with concurrency {concurrency}",
            expected="--replay closed-loop and --concurrency together",
        )
    if concurrency is not None and concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}", expected="at least 1")
    content = _content_of(workload, common_block(cluster))
    sees, memory = getattr(policy, "sees", None), getattr(policy, "memory", None)
    places = bool(getattr(policy, "places", False))
    if places and memory and cluster.router.gateways > 1:
        raise ConfigError(
            f"{policy.name} keeps books of all sessions, and there are {cluster.router.gateways} gateways",
            place="[router] gateways",
            expected="1",
        )
    sight = sight_of(cluster.router, sees, memory, workload, cluster.n_engines)
    if has_roles(cluster) and not places:
        check_sides(cluster, getattr(policy, "name", "without a name"))
        asks_hits = (cluster.router.split or {}).get("rule", "always") != "always"
        sight = sight._replace(memory=2 * sight.memory, sees=sight.sees | SEES_HITS * asks_hits)
    if workload.fleet is not None:
        sight = _of_models(sight, policy, audits)
    own = _own_index(workload, cluster, content)
    s = make_state(
        make_limits(cluster), content, workload.requests, sight, own, cluster, places, workload.fleet
    )
    lent = lend_scratch(s)
    # one signature for all runs: arrays that are contiguous and writable
    plain: list[Any] = [np.require(values, requirements=["C", "W"]) for values in workload.requests]
    world = (s, make_arrivals(workload, concurrency), Requests(*plain), rules_of(cluster, s), policy, seed)
    return Replay(content, *world, go_on=driven(*world), lent=lent)


def _of_models(sight: Sight, policy: Policy, audits: bool) -> Sight:
    """What is asked of pools with different models: the policy's estimator needs hits."""
    params = getattr(policy, "my", None)
    return sight._replace(
        sees=sight.sees | SEES_HITS,
        estimator=getattr(policy, "estimator", None),
        audits=audits,
        miss_share=float(getattr(params, "miss_share", math.nan)),
    )


@lru_cache(maxsize=2)
def _content_of(workload: Workload, block_tokens: int) -> Content:
    """Policies that are compared meet the same workload one after the other: its content is the same."""
    return compile_content(workload, block_tokens)


def _own_index(workload: Workload, cluster: Cluster, content: Content) -> OwnIndex | None:
    """The gateways' own, if they have any; `content` is in the engines' blocks."""
    params = own_index(cluster.router)
    if params is None:
        return None
    size = params.block_tokens or common_block(cluster)
    same = size == common_block(cluster)
    return OwnIndex(params, size, content if same else _content_of(workload, size))


def driven(s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Policy, seed: int) -> GoOn:
    """In one compiled loop where the policy is compiled, else in a plain one over compiled kernels."""
    drive = _compiled if is_compiled(policy.choose) else _plain
    return drive(s, arrivals, requests, rules, policy, seed)


def _run(replay: Replay, progress: Progress | None) -> None:
    """To the end."""
    s, n = replay.s, replay.requests.arrival.size
    if is_compiled(replay.policy.choose):
        _watch(replay.go_on, s, n, progress)
    else:
        every = max(n // 100, 1)
        while not replay.go_on(int(s.counts[ENDED]) + every):
            if progress:
                progress(int(s.counts[ENDED]) / n, "simulating")
    if progress:
        progress(1.0, "simulating")
    check_ended(s)


def check_ended(s: State) -> None:
    """Raises AgentctlError for a run that is void."""
    if s.counts[LOST_HOLDS]:
        raise AgentctlError(
            f"running requests hold more than {s.holds.size:,} pieces of KV at once",
            expected="fewer engines, sequences or blocks",
        )
    if s.router["lost_late"][0]:
        raise AgentctlError(
            f"more than {s.late.size:,} announcements of blocks are under way to the router at once",
            expected="a smaller index_delay_s",
        )
    if s.fleet["lost"][0]:
        raise AgentctlError(
            f"{s.fleet['lost'][0]:,} requests are on one engine, of which an estimate has to play all",
            expected=f"at most {MOST_SEEN:,}: less load, or a policy that asks for no estimate",
        )
    if s.counts[OUT_OF_KV]:
        raise AgentctlError(
            "an SGLang engine found no KV in the middle of a batch, where it would stop",
            hint="more kv_blocks, more conservativeness, or no mixed_chunk",
        )
    if s.router["has_roles"][0] and s.counts[ENDED] < s.over.size:
        raise AgentctlError(
            f"the run stands still: {s.over.size - int(s.counts[ENDED]):,} requests wait for each other",
            expected="a policy that lets a request wait only where it can be served later",
        )
    assert s.counts[ENDED] == s.over.size, "every request ends in exactly one state"


def _watch(go_on: GoOn, s: State, n: int, progress: Progress | None) -> None:
    """Run compiled code, which holds no lock of Python's, in a thread of its own; this one shows how far it
    is, and stops it on Ctrl-C or whatever else is raised here."""
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(go_on, n + 1)
        try:
            while not wait([run], timeout=WATCH_S).done:
                if progress:
                    progress(int(s.counts[ENDED]) / n, "simulating")
        except BaseException:
            s.counts[STOP] = 1
            raise
        run.result()


def _compiled(
    s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Policy, seed: int
) -> GoOn:
    replay = compile_policy(s, arrivals, requests, rules, policy)

    def go_on(until: int, stop_at: int = -1, held: int = -1, engine: int = 0) -> bool:
        try:
            r, answer = replay(seed, until, stop_at, held, engine)
        except Exception as error:  # whatever a user's function raises
            raise blame(policy.choose, error) from error
        if r >= 0:
            raise no_engine(policy, r, answer, s.engines.size)
        return bool(r == -1)

    return go_on


def _plain(s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Policy, seed: int) -> GoOn:
    advance, look, do = pieces(s, arrivals, requests)

    def go_on(until: int, stop_at: int = -1, held: int = -1, engine: int = 0) -> bool:
        if held >= 0:
            do(s, arrivals, held, engine, *rules[1:5], rules.place)
        while s.counts[ENDED] < until:
            r = advance(s, arrivals, *rules[:3], rules.note, rules.move)
            if r < 0:
                return True
            if r == stop_at:
                return False
            view = look(s, arrivals, requests, r, seed, rules.settle, rules.ask)
            answer = answer_of(s, policy, view, requests, r)
            if not do(s, arrivals, r, answer, *rules[1:5], rules.place):
                raise no_engine(policy, r, answer, s.engines.size)
        return False

    return go_on


def answer_of(s: State, policy: Policy, view: View, requests: Requests, r: int) -> int:
    """What a policy in plain Python answers; of one that names one engine, for both sides."""
    sides: Any = s.sides[0]
    if not sides.is_on:
        return ask(policy, view, requests, r)
    first, stop = int(sides.first_decode), int(sides.stop_decode)
    d = ask(policy, side_of(view, first, stop, view.last_decode, 0), requests, r)
    prompt = int(requests.prompt_tokens[r])
    if 0 <= d < stop - first and not is_split(sides, prompt, int(view.hit_tokens[first + d])):
        return first + d
    side = side_of(view, int(sides.first_prefill), int(sides.stop_prefill), view.last_chosen, 1)
    return int(both(d, ask(policy, side, requests, r), sides))


def ask(policy: Policy, view: View, requests: Requests, r: int) -> int:
    """What a policy in plain Python answers. Raises ConfigError for anything but a number."""
    try:
        answer = policy.choose(view, requests, r, policy.my)
    except Exception as error:  # whatever a user's function raises
        raise blame(policy.choose, error, r) from error
    if kind := kind_of(answer):
        raise wrong_kind(policy.name, kind)
    return int(answer)


def no_engine(policy: Policy, r: int, answer: int, n_engines: int) -> ConfigError:
    return ConfigError(
        f"chose engine {answer} for request {r}",
        place=f"policy {policy.name}",
        expected=f"a whole number from 0 to {n_engines - 1}",
    )


def rules_of(cluster: Cluster, s: State) -> Rules:
    """How the engines of this cluster work, all with one scheduler, and its gateways."""
    module = sglang if cluster.pools[0].scheduler == "sglang" else scheduler
    start, finish, move = module.start, module.finish, keeping.nothing
    if cluster.kv_tiers:
        start, finish, move = tiered.start, tiered.finish, tiered.move
    place = keeping.nothing
    if s.router["has_roles"][0]:
        start, finish, move, place = pooled.start, pooled.finish, pooled.move, placing.place
    elif s.power["is_known"].any():
        start, finish = energy.around(start)
    ask = tiered.ask if cluster.kv_tiers else keeping.ask
    kept = (ask, keeping.note) if s.router[0]["keeps"] else (keeping.nothing, keeping.nothing)
    if s.fleet["is_on"][0]:
        kept = fleet.ask, fleet.note
    return Rules(start, finish, module.settle, *kept, move, place)
