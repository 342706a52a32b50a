"""Formulas and production policies are found by name; a policy file says all that its router decides."""

from types import SimpleNamespace

import pytest

from agentctl.errors import AgentctlWarning, ConfigError
from agentctl.policies import _files, base
from agentctl.policies._files import FIXED, find_policy_file, parse_policy_file, policy_file_names
from agentctl.policies._names import file_and_function, is_user_policy, parse_policy, split_policies
from agentctl.policies._plugins import GROUP, import_plugins
from agentctl.policies.base import formula_names, load_policy, policy, policy_names
from agentctl.toml import read_toml

KV_AWARE = "vllm-router:kv_aware"
FIND = "agentctl.policies.base.find_policy_file"


def tables():
    return read_toml(_files.FOLDER / "vllm-router-kv_aware.toml")


def test_a_production_policy_is_its_formula_with_the_defaults_of_its_file():
    policy, formula = load_policy(KV_AWARE), load_policy("lmetric@vllm-router")
    assert policy.choose is formula.choose
    assert (policy.name, policy.tie) == (KV_AWARE, "first")
    assert (policy.file.router, policy.file.version) == ("vllm-router", "0.1.17")
    assert formula.file is None


def test_all_names_are_formulas_or_files_and_none_is_both():
    assert sorted([*formula_names(), *policy_file_names()]) == policy_names()
    assert len(set(policy_names())) == len(policy_names())


@pytest.mark.parametrize("name", policy_file_names())
def test_a_policy_file_names_a_formula_and_describes_each_of_its_parameters(name):
    policy = load_policy(name)
    file = policy.file
    assert file.formula in formula_names()
    assert set(file.params) == set(policy.params), "unit and key of every parameter"
    assert file.tie is None or policy.tie is not None, "a policy that cannot tie has no tie rule"
    assert file.provenance.get("source")
    for key, value in policy.params.items():
        given = file.params[key]
        assert value == given.value or given.value is None
        assert given.key == FIXED or given.key.startswith("-") or given.key[0].isalpha()


def test_a_file_gives_defaults_ties_and_signals_over_the_formulas(monkeypatch):
    text = {
        **tables(),
        "formula": "smetric",
        "tie": "random",
        "params": {
            "slack": {"value": 2, "unit": "ratio", "key": "--slack", "meaning": "share of the SLO"},
            "c_linear": {"value": 1e-4, "unit": "s/token", "key": FIXED, "meaning": "prefill"},
        },
        "signals": {"metrics_interval_s": 0.05},
    }
    monkeypatch.setattr(FIND, lambda name: parse_policy_file(text, "x.toml"))
    policy = load_policy(KV_AWARE)
    assert policy.params["slack"] == 2 and policy.params["hit_ratio"] == 0.7
    assert policy.tie == "random"
    assert policy.file.signals.metrics_interval_s == 0.05
    assert load_policy(KV_AWARE, {"slack": 3}, tie="first").params["slack"] == 3


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"schema": "agentctl/policy/0"}, "x.toml: schema is 'agentctl/policy/0'", None),
        ({"formulas": "lmetric"}, "x.toml: formulas: unknown key", "did you mean `formula`?"),
        (
            {"signals": {"metric_interval_s": 1}},
            "x.toml: [signals] metric_interval_s: unknown key",
            "metrics_",
        ),
        ({"signals": {"index": "exact"}}, "x.toml: [signals] index: is 'exact'", None),
        ({"params": {"slack": {"value": 1}}}, "x.toml: [params.slack] unit: missing", None),
        ({"tie": "coin"}, "x.toml: tie: is 'coin'", None),
    ],
)
def test_a_wrong_file_is_an_error_with_its_place(change, message, hint):
    with pytest.raises(ConfigError) as caught:
        parse_policy_file({**tables(), **change}, "x.toml")
    assert caught.value.message.startswith(message)
    assert hint is None or hint in caught.value.hint


def test_a_file_whose_name_does_not_fit_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "vllm-router-kv.toml").write_text((_files.FOLDER / "vllm-router-kv_aware.toml").read_text())
    monkeypatch.setattr(_files, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match="name: is 'vllm-router:kv_aware'"):
        find_policy_file("vllm-router:kv")


def test_a_file_with_an_unknown_formula_or_parameter_is_an_error(monkeypatch):
    def as_file(**change):
        return lambda name: parse_policy_file({**tables(), **change}, "x.toml")

    monkeypatch.setattr(FIND, as_file(formula="lmetrc@vllm-router"))
    with pytest.raises(ConfigError) as caught:
        load_policy(KV_AWARE)
    assert caught.value.message == f"policy {KV_AWARE}: formula: unknown policy"
    assert caught.value.hint == "did you mean `lmetric@vllm-router`?"
    unknown = {"slack": {"value": 1, "unit": "1", "key": FIXED, "meaning": "none"}}
    monkeypatch.setattr(FIND, as_file(params=unknown))
    with pytest.raises(ConfigError, match=f"policy {KV_AWARE}: slack: unknown parameter"):
        load_policy(KV_AWARE)


def test_an_unknown_production_policy_is_an_error_with_a_suggestion():
    with pytest.raises(ConfigError) as caught:
        load_policy("vllm-router:kv_awre")
    assert caught.value.hint == f"did you mean `{KV_AWARE}`?"


def test_two_files_cannot_have_one_name():
    with pytest.raises(ConfigError, match="policy lmetric: a policy of that name exists"):
        policy("lmetric", source="mine")(lambda view, requests, r, my: 0)


class Entry:
    """An installed distribution's entry point."""

    name, value, group = "theirs", "their_package.routing", GROUP
    dist = SimpleNamespace(name="their-package")

    def __init__(self, load):
        self.load = load


@pytest.fixture
def installed(monkeypatch):
    """Pretend that a distribution has a plug-in that does this when it is imported."""
    before = dict(base._registry)

    def install(load):
        monkeypatch.setattr("agentctl.policies._plugins.entry_points", lambda group: [Entry(load)])
        import_plugins.cache_clear()

    yield install
    base._registry.clear()
    base._registry.update(before)
    import_plugins.cache_clear()


def test_a_plugin_registers_as_our_own_files_do(installed):
    installed(lambda: policy("theirs", source="them")(lambda view, requests, r, my: 0))
    assert load_policy("theirs").source == "them"
    assert "theirs" in formula_names()


def test_a_broken_plugin_is_a_warning_that_names_its_distribution(installed):
    def load():
        raise ImportError("no such thing\nmore of it")

    installed(load)
    with pytest.warns(AgentctlWarning) as caught:
        assert "lmetric" in policy_names()
    assert str(caught[0].message) == (
        "policies of their-package (their_package.routing) are left out: ImportError: no such thing"
    )


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("smetric", "smetric", {}),
        ("smetric:slack=2,hit_ratio=0.5", "smetric", {"slack": 2, "hit_ratio": 0.5}),
        ("vllm-router:kv_aware", "vllm-router:kv_aware", {}),
        ("smg:cache_aware:rel=1.5", "smg:cache_aware", {"rel": 1.5}),
        ("./a=b/mine.py:choose", "./a=b/mine.py:choose", {}),
        ("./mine.py:choose:factor=1e-3", "./mine.py:choose", {"factor": 1e-3}),
        ("mine.py:factor=2", "mine.py", {"factor": 2}),
    ],
)
def test_a_policy_is_written_as_name_and_parameters(text, name, params):
    assert parse_policy(text, "--policy") == (name, params)


def test_a_list_of_policies_is_cut_between_policies():
    text = "lmetric, smetric:slack=2,hit_ratio=0.5,vllm-router:kv_aware,"
    assert split_policies(text) == ["lmetric", "smetric:slack=2,hit_ratio=0.5", "vllm-router:kv_aware"]
    assert split_policies(" , ") == []


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("./mine.py", ("./mine.py", "choose")),
        ("./mine.py:pick", ("./mine.py", "pick")),
        ("/a.py.d/mine.py:pick", ("/a.py.d/mine.py", "pick")),
    ],
)
def test_a_file_and_its_function(name, parts):
    assert is_user_policy(name) and file_and_function(name) == parts
    assert not is_user_policy("smg:py")
