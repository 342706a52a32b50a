"""`./mine.py:choose`: the user's own function, compiled or plain, as good as one of ours."""

import ast

import numpy as np
import pytest
from oracles import crowded
from oracles.random_clusters import make_case

from agentctl.errors import ConfigError
from agentctl.policies._user import SIGNALS, fields_read
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate

MINE = '''"""Where the prompt lives, unless that engine is busy."""
from typing import NamedTuple

import numpy as np
from numba import njit


class Params(NamedTuple):
    factor: float = 2.0
    slack: int = 1


{decorator}
def choose(view, requests, r, my):
    load = view.inflight_requests
    home = np.argmax(view.hit_tokens)
    return home if load[home] <= my.factor * load.mean() + my.slack else np.argmin(load)
'''


CHOOSE = "def choose(view, requests, r, my): return 0\n"
PLAIN = MINE.format(decorator="")


@pytest.fixture(scope="module")
def case():
    limits, trace_block, _ = crowded.RUNS[0]
    return make_case(*crowded.sessions(trace_block), trace_block, [limits] * 3)


def written(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def mine(tmp_path):
    return written(tmp_path, MINE.format(decorator="@njit"))


def test_compiled_and_plain_give_the_same_bits(tmp_path, case):
    outcomes = []
    for name, decorator in (("compiled.py", "@njit"), ("plain.py", "")):
        policy = load_policy(f"{written(tmp_path, MINE.format(decorator=decorator), name)}:choose")
        outcomes.append(simulate(case.workload, case.cluster, policy))
    assert len(set(outcomes[0].engine)) == 3
    assert outcomes[0].table().equals(outcomes[1].table())


def test_a_users_copy_of_one_of_ours_decides_as_ours(tmp_path, case):
    text = (
        "def choose(view, requests, r, my):\n    return (view.last_chosen + 1) % view.waiting_requests.size\n"
    )
    copied = simulate(case.workload, case.cluster, load_policy(str(written(tmp_path, text))))
    ours = simulate(case.workload, case.cluster, load_policy("round-robin"))
    assert np.array_equal(copied.engine, ours.engine)


def test_the_policy_says_what_the_file_says(mine):
    policy = load_policy(f"{mine}:choose")
    assert policy.name == "mine.py:choose"
    assert policy.params == {"factor": 2.0, "slack": 1.0}
    assert policy.sees == ("hit_tokens", "inflight_requests")
    assert policy.explanation == "Where the prompt lives, unless that engine is busy."
    assert load_policy(str(mine)).choose is policy.choose, "without a function: choose"


def test_parameters_are_taken_and_checked(mine):
    assert load_policy(str(mine), {"factor": 3}).params["factor"] == 3.0
    with pytest.raises(ConfigError) as caught:
        load_policy(str(mine), {"factr": 3})
    assert caught.value.message == "policy mine.py:choose: factr: unknown parameter"
    assert caught.value.hint == "did you mean `factor`?"


def test_a_changed_file_is_read_again(mine):
    assert load_policy(str(mine)).params["factor"] == 2
    written(mine.parent, MINE.format(decorator="").replace("= 2.0", "= 4.0"))
    assert load_policy(str(mine)).params["factor"] == 4


def test_what_lies_beside_the_file_can_be_imported(tmp_path):
    written(tmp_path, "LIMIT = 7\n", "beside_a_policy.py")
    path = written(
        tmp_path,
        "from beside_a_policy import LIMIT\n\ndef choose(view, requests, r, my):\n    return LIMIT\n",
    )
    assert load_policy(str(path)).choose(None, None, 0, None) == 7


def test_memory_cost_and_a_tie_rule_can_be_declared(tmp_path, case):
    text = """
from typing import NamedTuple
from numba import njit

class Params(NamedTuple):
    tie: int = 1

sees = ("memory",)

def memory(requests, sessions, engines):
    return engines

def cost(view, requests, r, my):
    return view.memory

@njit
def choose(view, requests, r, my):
    engine = view.memory.argmin()
    view.memory[engine] += 1
    return engine
"""
    policy = load_policy(str(written(tmp_path, text)), tie="random")
    assert (policy.sees, policy.tie, policy.memory(5, 4, 3)) == (("memory",), "random", 3)
    assert policy.cost is not None
    outcome = simulate(case.workload, case.cluster, policy)
    assert np.ptp(np.bincount(outcome.engine, minlength=3)) <= 1


def test_a_file_may_register_as_a_plugin_does(tmp_path):
    text = (
        "from agentctl.policies.base import policy\n\n"
        '@policy("first-engine", source="me", sees=("hit_tokens",))\n'
        "def choose(view, requests, r, my):\n    return 0\n"
    )
    policy = load_policy(str(written(tmp_path, text)))
    assert (policy.name, policy.source, policy.sees) == ("mine.py:choose", "me", ("hit_tokens",))


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("view.hit_tokens[0] + view.now", {"hit_tokens", "now"}),
        ("other.hit_tokens", set()),
        ("helper(view)", None),
        ("view._asdict()", None),
        ("[view.seed for x in y]", {"seed"}),
    ],
)
def test_what_a_file_reads_of_the_view_is_found_or_said_to_be_unknown(source, fields):
    assert fields_read(ast.parse(source), "view") == fields


def test_a_view_that_goes_elsewhere_may_be_read_whole_but_not_its_private_field(tmp_path):
    path = written(tmp_path, "def choose(view, requests, r, my):\n    return len(view) * 0\n")
    assert set(load_policy(str(path)).sees) == set(SIGNALS) - {"step_ends_at"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHOOSE.replace("choose", "choos"), "mine.py: has no function `choose`"),
        (
            "def choose(view): return 0\n",
            "mine.py:choose: takes 1 arguments; expected (view, re",
        ),
        ("x = 1\ndef choose(view, requests, r, my:\n", "mine.py:2: SyntaxError: '(' was never closed"),
        ("x = 1\ny = x / 0\n", "mine.py:2: ZeroDivisionError: division by zero"),
        ("import nowhere_at_all\n", "mine.py:1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("raise SystemExit(3)\n", "mine.py:1: SystemExit: 3"),
        (f"Params = 3\n{CHOOSE}", "mine.py:choose: Params: is no NamedTuple"),
        (PLAIN.replace(" = 2.0", ""), "mine.py:choose: Params: factor has no default; expected a number"),
        (PLAIN.replace("2.0", "'a'"), "mine.py:choose: Params: factor is 'a'; expected a number"),
        (
            PLAIN.replace("slack: int = 1", "tie: int = 4"),
            "mine.py:choose: Params: tie is 4; expected 0 fi",
        ),
        (f"sees = ('hits',)\n{PLAIN}", "mine.py:choose: sees: names 'hits'"),
        (f"sees = ('hit_tokens',)\n{PLAIN}", "mine.py:choose: sees: leaves out `inflight_requests`"),
        (CHOOSE.replace("0", "view.step_ends_at.argmin()"), "mine.py:choose: reads step_ends_at, which no"),
        (f"memory = 3\n{CHOOSE}", "mine.py:choose: memory: is 3; expected a function"),
    ],
)
def test_a_file_that_is_no_policy_is_an_error_with_its_place(tmp_path, monkeypatch, text, message):
    written(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_policy("./mine.py")
    assert caught.value.message.startswith(message)


def test_a_function_that_is_not_there_is_an_error_with_a_suggestion(mine):
    with pytest.raises(ConfigError) as caught:
        load_policy(f"{mine}:chose")
    assert (caught.value.message, caught.value.hint) == (
        "mine.py: has no function `chose`",
        "did you mean `choose`?",
    )


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.py: cannot be read \(No such file or directory\)"):
        load_policy(f"{tmp_path}/gone.py:choose")


def test_a_wrong_index_in_a_function_that_it_calls_is_an_error_too(tmp_path, case):
    text = "from numba import njit\n\n@njit\ndef far(hits):\n    return hits[99]\n\n@njit\n"
    path = written(tmp_path, f"{text}{CHOOSE.replace('0', 'far(view.hit_tokens)')}")
    with pytest.raises(ConfigError, match=r"mine\.py: IndexError: index is out of bounds"):
        simulate(case.workload, case.cluster, load_policy(str(path)))
