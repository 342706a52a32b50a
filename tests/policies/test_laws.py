"""Laws of all policies, formulas and production policies alike, in random scenes of a few requests."""

import itertools
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.asking import path_of, plain
from oracles.state_x import view_of

from agentctl.estimators.batch_time import BatchTime
from agentctl.policies.base import formula_names, load_policy, policy_names
from agentctl.sim.view import View

TIMES = BatchTime(
    b0=0.01, b_prefill=6e-5, b_decode=1e-4, b_context=2e-8, b_context_mixed=1e-7, b_attention=1e-9, h0=0.02
)
# Parameters under which a formula reads more than by default; production policies have theirs.
VARIANTS = [
    ("hybrid-sticky", {"by_time": 1}),
    ("smetric", {"first_turn": 1}),
    ("mooncake-conductor", {"balancing_threshold": 2}),
    ("preble", {"high_load": 2}),
    ("conserve", {"quantile": 0.5}),
    ("smg:least_load", {"queue_tokens": 1}),
]
# Round robin orders engines by number, on purpose; a draw is a number too, and so is a place on a ring.
BY_NUMBER = {
    "round-robin", "random", "power-of-two", "power-of-two-inflight", "power-of-two-tokens",
    "bailian-sampled", "manual", "consistent-hash", "prefix-hash", "sticky-least-loaded", "dualmap",
}  # fmt: skip
OWN = {"now", "seed", "last_chosen", "memory"}  # the router's own: known to every policy

# Policies that answer with placements have their own laws, in tests/sim/test_role_policies.py.
NAMES = [name for name in policy_names() if not (load_policy(name).places or load_policy(name).needs_fleet)]
POLICIES = [(name, {}) for name in NAMES] + VARIANTS
COUNTS = [
    "waiting_requests", "running_requests", "inflight_requests", "unpublished_requests", "kv_used_blocks",
    "active_blocks",
]  # fmt: skip
TOKENS = ["pending_prefill_tokens", "inflight_prefill_tokens", "context_tokens", "unpublished_tokens"]


@st.composite
def scenes(draw, least_engines=1, most_engines=4):
    """What a gateway sees at each of a few requests, and the requests. Few values, so that many are equal."""
    n = draw(st.integers(least_engines, most_engines))
    n_requests = draw(st.integers(1, 4))
    counts, tokens = st.sampled_from([0, 1, 2, 5, 30]), st.sampled_from([0, 16, 320, 2_400, 19_200, 26_000])

    def each(values, of=n):
        return draw(st.lists(values, min_size=of, max_size=of))

    prompts = each(st.sampled_from([1, 16, 100, 2_400, 20_000]), n_requests)
    requests = {
        "prompt_tokens": np.array(prompts),
        "session": np.array(each(st.sampled_from([0, 1]), n_requests)),
        "turn": np.array(each(st.sampled_from([0, 1]), n_requests)),
        "output_tokens": np.array(each(st.sampled_from([1, 300]), n_requests)),
    }
    views, now = [], 0.0
    for prompt in prompts:
        now += draw(st.sampled_from([0.0, 0.5, 200.0]))
        fields = {name: each(counts) for name in COUNTS} | {name: each(tokens) for name in TOKENS}
        fields["hit_tokens"] = [min(hit, (prompt - 1) // 16 * 16) for hit in each(tokens)]
        fields["pending_prefill_pairs"] = [1e4 * pending for pending in fields["pending_prefill_tokens"]]
        fields["kv_total_blocks"] = each(st.sampled_from([100, 2_000]))
        fields["step_ends_at"] = [now + left for left in each(st.sampled_from([0.0, 0.02, np.inf]))]
        n_blocks = prompt // 16 + 2
        fields |= path_of((0, n_blocks // 2), (draw(st.sampled_from([1, 2])), n_blocks))
        scalars = {"now": now, "published_at": now - 0.05, "expected_hit": draw(tokens)}
        views.append(view_of(**fields)._replace(seed=draw(st.sampled_from([0, 7])), **scalars))
    return SimpleNamespace(n=n, n_requests=n_requests, requests=requests, views=views)


class Asked:
    """A policy that has been asked nothing yet, in a scene."""

    def __init__(self, name, params, scene, tie="policy"):
        self.policy = load_policy(name, params, tie=tie, batch_time=TIMES)
        size = self.policy.memory(scene.n_requests, 2, scene.n) if self.policy.memory else 0
        self.scene, self.memory, self.last = scene, np.zeros(size), -1

    def view(self, r):
        return self.scene.views[r]._replace(memory=self.memory, last_chosen=self.last)

    def choose(self, r, view=None, requests=None):
        requests = requests or SimpleNamespace(**self.scene.requests)
        view = self.view(r) if view is None else view
        self.last = int(plain(self.policy.choose)(view, requests, r, self.policy.my))
        return self.last

    def cost(self, r):
        return plain(self.policy.cost)(
            self.view(r), SimpleNamespace(**self.scene.requests), r, self.policy.my
        )


def choices(name, params, scene):
    asked = Asked(name, params, scene)
    return [asked.choose(r) for r in range(scene.n_requests)]


@given(scenes())
@settings(max_examples=30)
def test_every_answer_is_an_engine(scene):
    for name, params in POLICIES:
        assert all(0 <= engine < scene.n for engine in choices(name, params, scene)), name


@given(scenes(most_engines=1))
@settings(max_examples=10)
def test_one_engine_leaves_no_choice(scene):
    for name, params in POLICIES:
        assert not any(choices(name, params, scene)), name


def test_idle_engines_that_hold_nothing_are_chosen_from():
    """All counts are zero, for the first request of a gateway and for a second one of the same session."""
    requests = {key: np.array([16, 16]) for key in ("prompt_tokens", "output_tokens")}
    requests |= {"session": np.array([0, 0]), "turn": np.array([0, 1])}
    view = view_of()._replace(**path_of((0, 2)))
    scene = SimpleNamespace(n=4, n_requests=2, requests=requests, views=[view, view])
    for name, params in POLICIES:
        assert all(0 <= engine < 4 for engine in choices(name, params, scene)), name


@given(scenes())
@settings(max_examples=30)
def test_the_least_cost_wins_and_looking_at_it_changes_nothing(scene):
    for name, params in POLICIES:
        asked = Asked(name, params, scene)
        if asked.policy.cost is None:
            continue
        found = []
        for r in range(scene.n_requests):
            cost = np.array(asked.cost(r))
            found.append(asked.choose(r))
            assert cost.size == scene.n
            # waits within a microsecond are equal to smg
            assert cost[found[-1]] <= cost.min() + 1e-6, name
        assert found == choices(name, params, scene), name


def poisoned(view, sees):
    """The view with nonsense in the fields that a policy does not claim to see."""

    def nonsense(value):
        if not isinstance(value, np.ndarray):
            return np.nan if isinstance(value, float) else 2**40
        if value.dtype.names:
            return value[:0]
        return np.full(value.size, np.nan if value.dtype.kind == "f" else 2**40)

    unseen = set(View._fields) - set(sees) - OWN
    return view._replace(**{name: nonsense(getattr(view, name)) for name in unseen})


def of_now(scene, r, name):
    """The requests with nonsense in what a router cannot know: outputs, and all requests but this one."""
    known = {key: column if key != "output_tokens" else None for key, column in scene.requests.items()}
    if name.startswith("oracle-"):
        return SimpleNamespace(**scene.requests)
    others = np.arange(scene.n_requests) != r
    return SimpleNamespace(
        **{
            key: np.full(scene.n_requests, 2**40) if column is None else np.where(others, 2**40, column)
            for key, column in known.items()
        }
    )


@given(scenes())
@settings(max_examples=40)
def test_what_a_policy_does_not_claim_to_see_does_not_matter(scene):
    for name, params in POLICIES:
        asked = Asked(name, params, scene)
        blind = [
            asked.choose(r, poisoned(asked.view(r), asked.policy.sees), of_now(scene, r, name))
            for r in range(scene.n_requests)
        ]
        assert blind == choices(name, params, scene), name


class Recorder:
    """A view that remembers which of its fields were read."""

    def __init__(self, view, read):
        self.__dict__.update(view=view, read=read)

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(self.view, name)


def test_a_policy_uses_all_that_it_claims_to_see():
    """By default, in one of its variants, or as one of the production policies that are made of it."""
    read = defaultdict(set)

    @given(scenes())
    @settings(max_examples=40)
    def watch(scene):
        for name, params in POLICIES:
            asked = Asked(name, params, scene)
            formula = asked.policy.file.formula if asked.policy.file else name
            for r in range(scene.n_requests):
                asked.choose(r, Recorder(asked.view(r), read[formula]))

    watch()
    for name in set(formula_names()) & set(NAMES):
        sees = set(load_policy(name).sees)
        assert sees <= set(View._fields)
        # any array tells how many engines there are: one of those that cost nothing
        assert read[name] - sees <= OWN | {"waiting_requests"}, name
        assert sees <= read[name], name


def test_only_oracles_see_what_is_private():
    for name in policy_names():
        assert name.startswith("oracle-") or "step_ends_at" not in load_policy(name).sees


def is_tied(asked, r):
    """Whether the tie rule decides: rotating from each engine in turn gives another answer."""
    before, last = asked.memory.copy(), asked.last
    answers = set()
    for engine in range(asked.scene.n):
        asked.last = engine
        answers.add(asked.choose(r))
        asked.memory[:] = before
    asked.last = last
    return len(answers) > 1


def relabelled(scene, order):
    """The scene with engine order[k] as engine k."""
    views = [
        view._replace(
            **{
                key: value[list(order)]
                for key, value in view._asdict().items()
                if isinstance(value, np.ndarray) and value.size == scene.n and not value.dtype.names
            }
        )
        for view in scene.views
    ]
    return SimpleNamespace(**{**vars(scene), "views": views})


def test_relabelling_the_engines_relabels_the_choice_where_no_tie_decides():
    by_state = [(name, {}) for name in formula_names() if name in NAMES and name not in BY_NUMBER] + VARIANTS
    decided = defaultdict(int)

    @given(scenes(least_engines=2, most_engines=3))
    @settings(max_examples=40)
    def relabel(scene):
        for name, params in by_state:
            asked = Asked(name, params, scene, tie="rotate")
            orders = list(itertools.permutations(range(scene.n)))
            others = [Asked(name, params, relabelled(scene, order), tie="rotate") for order in orders]
            for r in range(scene.n_requests):
                if is_tied(asked, r):
                    break
                engine = asked.choose(r)
                for order, other in zip(orders, others, strict=True):
                    assert order[other.choose(r)] == engine, name
                decided[name] += 1

    relabel()
    assert set(decided) == {name for name, _ in by_state}, "policies that always tie were not tested"


@pytest.mark.parametrize("name", sorted(BY_NUMBER))
def test_names_of_policies_that_go_by_number_exist(name):
    assert name in formula_names()
