"""The adapter of vLLM against a stand-in with the attributes that vLLM 0.32 has."""

import builtins
import sys
from types import ModuleType, SimpleNamespace

import pytest
from inprocess.conftest import TRUTH

from agentctl.errors import ConfigError, UsageError
from agentctl.inprocess.plan import STEPS, Scene
from agentctl.inprocess.stepping import Prompts, play
from agentctl.inprocess.vllm_engine import VllmEngine


@pytest.fixture
def engine(vllm, tmp_path):
    vllm(noise=0.0)
    return VllmEngine(tmp_path, {"max_num_batched_tokens": 256}, eager=True, gpus=1)


def test_its_limits_and_mode_are_what_the_engine_says(engine):
    assert engine.limits() == {
        "kv_blocks": 512, "block_tokens": 16, "kv_bytes_per_token": 32, "max_num_batched_tokens": 256,
        "max_num_seqs": 16, "max_model_len": 4096,
    }  # fmt: skip
    mode = engine.mode()
    assert (mode["graphs"], mode["eager"], mode["async_scheduling"]) == ("none", True, False)
    assert (mode["threads"], mode["dtype"], mode["weights"]) == (1, "bfloat16", "dummy")
    assert (engine.version, engine.device_name, engine.clock.name) == ("vllm 0.32.0", "cpu", "cpu")


def test_captured_graphs_are_told_unless_it_runs_eagerly(vllm, tmp_path):
    vllm()
    arguments = {"captured": [8, 1, 4]}
    assert VllmEngine(tmp_path, arguments, eager=False, gpus=1).captured() == (1, 4, 8)
    assert VllmEngine(tmp_path, arguments, eager=True, gpus=1).captured() == ()


def test_a_cold_prompt_is_recorded_chunk_by_chunk(engine):
    taken = play(engine, Scene("cold", "cold", fresh=(600,)), Prompts(2048, 0, 0))
    assert [one.batch for one in taken] == [[[0, 256, 1]], [[256, 256, 1]], [[512, 88, 1]]]
    first = TRUTH["b0"] + 256 * TRUTH["b_prefill"] + 256 * 257 / 2 * TRUTH["b_attention"]
    assert taken[0].seconds == pytest.approx(first, rel=1e-12)


def test_a_plateau_is_recorded_from_where_all_decode_on_contexts_of_their_own(engine):
    taken = play(engine, Scene("plateau", "decode", n=3, context=161), Prompts(2048, 0, 0))
    assert len(taken) == STEPS
    assert all(len(one.batch) == 3 and not any(part[2] for part in one.batch) for one in taken)
    assert all(context >= 161 for one in taken for context, _, _ in one.batch)
    prompts = Prompts(2048, 0, 0)
    assert len({tuple(prompts.stream(i, 161)) for i in range(3)}) == 3


def test_a_context_that_comes_again_is_found_in_the_cache(engine):
    prompts = Prompts(2048, 0, 0)
    play(engine, Scene("once", "decode", n=2, context=161), prompts)
    before = engine.core.busy
    play(engine, Scene("again", "decode", n=2, context=161), prompts)
    assert engine.core.busy - before < (STEPS + 3) * (TRUTH["b0"] + 8 * TRUTH["b_prefill"])


def test_fresh_tokens_after_a_cached_prefix_are_all_that_is_computed(engine):
    taken = play(engine, Scene("suffix", "suffix", fresh=(40,), past=161), Prompts(2048, 0, 0))
    assert [one.batch for one in taken] == [[[160, 41, 1]]]  # whole blocks are hits


def test_a_prefill_is_recorded_beside_the_decodes(engine):
    taken = play(engine, Scene("mixed", "mixed", n=2, context=33, fresh=(300,)), Prompts(2048, 0, 0))
    parts = [part for one in taken for part in one.batch]
    assert sum(tokens for _, tokens, is_prefill in parts if is_prefill) == 300
    assert all(sum(1 for part in one.batch if not part[2]) == 2 for one in taken)


def test_nothing_is_left_running_after_a_scene(engine):
    play(engine, Scene("mixed", "mixed", n=2, context=33, fresh=(30,)), Prompts(2048, 0, 0))
    assert engine.step() is None


def test_a_batch_that_cannot_be_formed_gives_no_step(engine):
    assert play(engine, Scene("wide", "decode", n=40, context=33), Prompts(2048, 0, 0)) == []
    assert engine.step() is None


def test_closed_it_leaves_the_core_as_it_was(engine):
    engine.close()
    assert engine.core.is_down and "schedule" not in vars(engine.core.scheduler)


class Event:
    """Of CUDA: a time on the GPU's own clock, known once it is waited for."""

    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing
        self.at, self.is_known = None, False

    def record(self):
        Event.now += 2.0
        self.at = Event.now

    def synchronize(self):
        self.is_known = True

    def elapsed_time(self, end):
        assert end.is_known
        return end.at - self.at


def test_on_a_gpu_events_lie_around_the_execution_of_the_batch(vllm, tmp_path, monkeypatch):
    vllm(device="cuda")
    monkeypatch.setattr(sys.modules["torch"], "cuda", SimpleNamespace(Event=Event), raising=False)
    engine = VllmEngine(tmp_path, {}, eager=False, gpus=1)
    engine.add("one", [1, 2, 3], 2)
    assert engine.clock.name == "events" and engine.device_name == "NVIDIA Fake"
    assert engine.step().seconds == pytest.approx(2e-3)
    assert engine.core.log == ["schedule", "execute", "sample", "update"]
    assert engine.mode()["threads"] is None


@pytest.mark.parametrize(("device", "threads", "gpus"), [("cuda", 1, 2), ("cpu", 8, 1), ("xpu", 1, 1)])
def test_where_no_better_clock_can_be_had_it_is_the_wall(vllm, tmp_path, device, threads, gpus):
    vllm(device, threads)
    engine = VllmEngine(tmp_path, {}, eager=False, gpus=gpus)
    engine.add("one", [1, 2, 3], 1)
    step = engine.step()
    assert engine.clock.name == "wall"
    assert 0 < step.seconds <= step.wall_s


def test_weights_are_made_up_and_steps_come_one_at_a_time(vllm, tmp_path, monkeypatch):
    fake = vllm()
    seen = []
    start = fake.from_engine_args.__func__
    monkeypatch.setattr(fake, "from_engine_args", classmethod(lambda c, a: seen.append(a) or start(c, a)))
    VllmEngine(tmp_path, {"max_num_seqs": 8}, eager=False, gpus=1)
    given = seen[0]
    assert (given.load_format, given.skip_tokenizer_init, given.async_scheduling) == ("dummy", True, False)
    assert (given.distributed_executor_backend, given.max_num_seqs) == ("uni", 8)


@pytest.mark.parametrize(
    ("name", "told"),
    [("max_num_sequences", "did you mean `max_num_seqs`"), ("load_format", "set by the measurement")],
)
def test_an_argument_that_is_none_or_ours_is_refused(vllm, tmp_path, name, told):
    vllm()
    with pytest.raises(UsageError) as caught:
        VllmEngine(tmp_path, {name: 1}, eager=False, gpus=1)
    assert told in f"{caught.value} {caught.value.hint}"


def test_what_vllm_refuses_is_told_in_its_first_line(vllm, tmp_path):
    vllm()
    with pytest.raises(ConfigError, match="max_num_seqs must be positive") as caught:
        VllmEngine(tmp_path, {"max_num_seqs": 0}, eager=False, gpus=1)
    assert "nobody reads" not in str(caught.value) and str(tmp_path) not in str(caught.value)


class Counted(ValueError):
    """As pydantic's errors are: the first line is their number."""

    def errors(self):
        return [{"loc": ("dtype",), "msg": "Value error, Unknown dtype"}]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("integer modulo by zero"), "ZeroDivisionError: integer modulo by zero"),
        (KeyError("rope"), "KeyError: 'rope'"),
        (Counted("2 validation errors for ModelConfig"), "Counted: dtype: Unknown dtype"),
    ],
)
def test_whatever_vllm_trips_over_is_no_bug_of_ours(vllm, monkeypatch, tmp_path, error, told):
    def start(arguments):
        raise error

    monkeypatch.setattr(vllm(), "from_engine_args", staticmethod(start))
    with pytest.raises(ConfigError) as caught:
        VllmEngine(tmp_path, {}, eager=False, gpus=1)
    assert told in str(caught.value)


def test_without_vllm_the_error_names_the_cure(monkeypatch, tmp_path):
    real = builtins.__import__

    def none(name, *rest, **more):
        if name == "vllm" or name.startswith("vllm."):
            raise ModuleNotFoundError("No module named 'vllm'", name="vllm")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", none)
    with pytest.raises(UsageError, match="not installed") as caught:
        VllmEngine(tmp_path, {}, eager=False, gpus=1)
    assert "pip install vllm" in caught.value.hint and "--backend torch" in caught.value.hint
    assert not isinstance(sys.modules.get("vllm"), ModuleType)
