"""What is asked of an endpoint: enough, distinct where it must be, and never more than was allowed."""

import pytest

from agentctl.endpoint.address import api_key, base_url
from agentctl.endpoint.plan import make_plan
from agentctl.endpoint.prompts import Prompts
from agentctl.errors import UsageError


@pytest.mark.parametrize("requests", [60, 100, 150, 200])
def test_a_plan_stays_within_its_budget_and_has_every_kind(requests):
    plan = make_plan(requests)
    assert plan.n_requests <= requests
    assert {step.kind for step in plan.steps} == {"warm", "cold", "suffix", "plateau", "inject", "mixed"}
    assert plan.steps[0].kind == "warm" and plan.steps[-1].kind == "mixed"


def test_a_budget_that_no_plan_meets_is_refused():
    with pytest.raises(UsageError, match="at least"):
        make_plan(10)


@pytest.mark.parametrize("context", [1024, 2048, 8192])
def test_no_request_is_longer_than_the_engine_takes(context):
    probes = [
        probe for step in make_plan(max_context=context).steps for part in step.phases for probe in part
    ]
    assert max(probe.prompt_tokens + probe.max_tokens for probe in probes) <= context


def test_decodes_of_a_plateau_share_no_token_block():
    prompts = Prompts("salt")
    for step in make_plan().steps:
        if step.kind == "plateau":
            starts = [tuple(prompts.of(probe.prompt)[:16]) for probe in step.phases[0]]
            assert len(set(starts)) == len(starts)


def test_a_suffix_continues_a_prompt_that_was_sent_before():
    prompts = Prompts("salt")
    steps = [step for step in make_plan().steps if step.kind == "suffix"]
    assert len(steps) == 3
    for step in steps:
        prefix = prompts.of(step.phases[0][0].prompt)
        for (probe,) in step.phases[1:]:
            assert prompts.of(probe.prompt)[: len(prefix)] == prefix


def test_another_attempt_sends_other_prompts_of_the_same_length():
    probe = make_plan().steps[1].phases[0][0]
    first, second = (Prompts(f"salt/{attempt}").of(probe.prompt) for attempt in (1, 2))
    assert len(first) == len(second) == probe.prompt_tokens and first[:16] != second[:16]


def test_the_same_seed_makes_the_same_plan():
    assert make_plan(seed=3).digest == make_plan(seed=3).digest != make_plan(seed=4).digest


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("http://[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_this_machine_is_talked_to(text, base):
    assert base_url(text, owned=False) == base


@pytest.mark.parametrize(
    "text",
    ["http://10.0.0.7:8000", "https://api.example.com/v1", "http://localhost.example.com", "http://0.0.0.0"],
)
def test_another_machine_only_with_its_owners_word(text):
    with pytest.raises(UsageError, match="not on this machine") as refused:
        base_url(text, owned=False)
    assert "--i-own-this-endpoint" in refused.value.hint
    assert base_url(text, owned=True).endswith("/v1")


@pytest.mark.parametrize(
    "text", ["127.0.0.1:8000", "ftp://localhost", "http://me:key@localhost", "http://a:99999", ""]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match="is no address"):
        base_url(text, owned=True)


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("AGENTCTL_API_KEY", raising=False)
    assert api_key() is None
    monkeypatch.setenv("OPENAI_API_KEY", "b")
    monkeypatch.setenv("AGENTCTL_API_KEY", "a")
    assert api_key() == "a"
    for broken in ("se cret", "secret\n", "s\u00e9cret"):
        monkeypatch.setenv("AGENTCTL_API_KEY", broken)
        with pytest.raises(UsageError) as refused:
            api_key()
        assert "cret" not in str(refused.value)
