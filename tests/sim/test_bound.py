"""A user's function may fail in any way: compiled or plain, the error names what and where."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from oracles.random_clusters import Limits, Request, cluster_of, workload_of

from agentctl.errors import ConfigError
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate


class Params(NamedTuple):
    factor: float = 2.0


HEAD = "import numpy as np\nfrom numba import njit\n"
WORKLOAD = workload_of([Request(100, 10, arrival=float(r), session=r) for r in range(4)], None, "timestamps")
CLUSTER = cluster_of([Limits(kv_blocks=100)] * 3)


def written(folder, body, decorated):
    """`choose` with this body, from a file: its first line is line 5, or 4 without decoration."""
    path = folder / "mine.py"
    decorator = "@njit\n" if decorated else ""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    path.write_text(f"{HEAD}{decorator}def choose(view, requests, r, my):\n{lines}")
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return SimpleNamespace(name="mine", choose=module.choose, my=Params())


def failure(folder, body, decorated):
    with pytest.raises(ConfigError) as caught:
        simulate(WORKLOAD, CLUSTER, written(folder, body, decorated))
    return caught.value


both = pytest.mark.parametrize("decorated", [True, False], ids=["compiled", "plain"])


@both
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("1.0", "float"), ("True", "bool"), ("None", "None"), ("'a'", "str"), ("(1, 2)", "tuple"),
        ("view.hit_tokens", "array"), ("view.now * 0", "float"), ("view.hit_tokens[0] == 0", "bool"),
        ("np.float64(1)", "float"),
    ],
)  # fmt: skip
def test_an_answer_of_another_kind_is_refused_in_the_same_words(tmp_path, answer, kind, decorated):
    error = failure(tmp_path, f"return {answer}", decorated)
    assert error.message == f"policy mine: answers with {kind}; expected a whole number, that of an engine"


@both
def test_a_wrong_index_is_an_error_with_the_request(tmp_path, decorated):
    error = failure(tmp_path, "return 3 if r == 2 else 0", decorated)
    assert error.message == "policy mine: chose engine 3 for request 2; expected a whole number from 0 to 2"


@both
@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ("x = view.hits\nreturn 0", "View has no field `hits`", "known: "),
        (
            "x = view.hit_token\nreturn 0",
            "View has no field `hit_token`",
            "did you mean `hit_tokens`?; known",
        ),
        ("x = requests.prompt\nreturn 0", "Requests has no field `prompt`", "did you mean `prompt_tokens`?"),
        ("x = my.factr\nreturn 0", "Params has no field `factr`", "did you mean `factor`?; known: factor"),
    ],
)
def test_an_unknown_field_is_named_with_its_line_and_the_known_ones(tmp_path, body, message, hint, decorated):
    error = failure(tmp_path, body, decorated)
    assert error.message == f"mine.py:{5 if decorated else 4}: {message}"
    assert error.hint.startswith(hint)


def test_what_a_plain_function_raises_is_told_with_its_line_and_request(tmp_path):
    error = failure(tmp_path, "x = [][r]\nreturn 0", decorated=False)
    assert error.message == "mine.py:4: IndexError: list index out of range (request 0)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return view.hit_tokens[7]", "mine.py: IndexError: index is out of bounds"),
        ("return 1 // (r - r)", "mine.py: ZeroDivisionError: integer division by zero"),
    ],
)
def test_what_a_compiled_function_raises_is_no_crash(tmp_path, body, message):
    error = failure(tmp_path, body, decorated=True)
    assert error.message == message
    assert error.hint == "`agentctl policies check` finds the line"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return nowhere", "cannot be compiled: NameError: name 'nowhere' is not defined"),
        ("if r:\n    return 'a'\nreturn 0", "policy mine: answers with str"),
        ("return 'a' if r else 0", "mine.py:5: cannot be compiled: Cannot unify"),
        ("return sorted(view)", "cannot be compiled"),
    ],
)
def test_what_cannot_be_compiled_is_told_in_one_line(tmp_path, body, message):
    error = failure(tmp_path, body, decorated=True)
    assert message in error.message
    assert "\n" not in error.message and len(error.message) < 300


def test_a_policy_is_cached_where_its_file_is_and_a_users_function_only_if_it_says_so(tmp_path):
    def cached():
        return {file.name.split("-")[0] for file in Path(os.environ["NUMBA_CACHE_DIR"]).rglob("*.nbi")}

    simulate(WORKLOAD, CLUSTER, load_policy("least-waiting"))
    simulate(WORKLOAD, CLUSTER, written(tmp_path, "return 0", decorated=True))
    assert "least_waiting.choose_bound" in cached()
    assert "mine.choose_bound" not in cached()
