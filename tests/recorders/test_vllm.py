"""The recorders against stand-ins for vLLM's classes, with the attributes that vLLM 0.32 has."""

import json
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from agentctl.estimators.step_logs import read_step_logs
from agentctl.recorders import vllm_scheduler, vllm_stats


class Request(SimpleNamespace):
    """num_tokens counts prompt and output so far, num_output_tokens the latter."""


class Scheduler:
    """One step after another, from a script of SchedulerOutputs."""

    def __init__(self, script, requests):
        self.script, self.requests = list(script), requests
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_rank=0))
        self.updated = []

    def schedule(self):
        return self.script.pop(0)

    def update_from_output(self, scheduler_output, model_runner_output):
        self.updated.append(model_runner_output)
        return {0: model_runner_output}


def output(new=(), cached=(), **tokens):
    """new: (id, computed); cached: (id, computed); tokens: id=number scheduled."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=r, num_computed_tokens=c) for r, c in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[r for r, _ in cached], num_computed_tokens=[c for _, c in cached]
        ),
        num_scheduled_tokens=tokens,
    )


@pytest.fixture
def vllm(monkeypatch):
    """`import vllm...` finds the stand-ins; nothing of ours keeps them afterwards."""
    base = type("StatLoggerBase", (), {})
    for name, members in {
        "vllm": {}, "vllm.v1": {}, "vllm.v1.core": {}, "vllm.v1.core.sched": {}, "vllm.v1.metrics": {},
        "vllm.v1.core.sched.scheduler": {"Scheduler": Scheduler},
        "vllm.v1.metrics.loggers": {"StatLoggerBase": base},
    }.items():  # fmt: skip
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    yield base
    for module, name in ((vllm_scheduler, "StepScheduler"), (vllm_stats, "StepLogger")):
        vars(module).pop(name, None)


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "steps.jsonl"
    monkeypatch.setenv("AGENTCTL_STEPS", str(path))
    return path


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_recorders_need_no_vllm_to_be_imported():
    assert "vllm" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        vllm_scheduler.StepScheduler  # noqa: B018
    assert not hasattr(vllm_stats, "anything_else")


def test_a_scheduler_writes_what_each_request_computes(vllm, log):
    """A prompt of 100 in chunks of 60 and 40, its first decode, and its recomputation after a preemption."""
    request = Request(num_tokens=100, num_output_tokens=0)
    script = [
        output(new=[("a", 0)], a=60),
        output(cached=[("a", 60)], new=[("b", 16)], a=40, b=8),
        output(cached=[("a", 100)], a=1),
        output(cached=[("a", 0)], a=64),
        output(),
    ]
    scheduler = vllm_scheduler.StepScheduler(script, {"a": request})
    for step in range(5):
        if step == 2:
            request.num_tokens, request.num_output_tokens = 101, 1
        scheduled = scheduler.schedule()
        assert scheduler.update_from_output(scheduled, step) == {0: step}
    assert [row["batch"] for row in rows(log)] == [
        [[0, 60, 1]],
        [[16, 8, 1], [60, 40, 1]],
        [[100, 1, 0]],
        [[0, 64, 1]],
    ]  # a step of no request is none
    assert scheduler.updated == [0, 1, 2, 3, 4]
    assert all(
        row["schema"] == "agentctl/steps/1" and row["seconds"] > 0 and row["engine"] == 0 for row in rows(log)
    )


def test_a_prefill_of_one_token_is_no_decode(vllm, log):
    request = Request(num_tokens=17, num_output_tokens=0)
    scheduler = vllm_scheduler.StepScheduler([output(cached=[("a", 16)], a=1)], {"a": request})
    scheduler.update_from_output(scheduler.schedule(), 0)
    assert rows(log)[0]["batch"] == [[16, 1, 1]]


def test_what_a_scheduler_wrote_is_read(vllm, log):
    script = [output(cached=[("a", 99 + n)], new=[(f"n{n}", 0)], a=1, **{f"n{n}": 32}) for n in range(60)]
    request = Request(num_tokens=100, num_output_tokens=1)
    scheduler = vllm_scheduler.StepScheduler(script, {"a": request})
    for n in range(60):
        request.num_tokens = 100 + n
        scheduled = scheduler.schedule()
        time.sleep(1e-3)
        scheduler.update_from_output(scheduled, n)
    steps = read_step_logs([log], warm_up=0, max_wait=1e9).steps
    assert len(steps) == 60 and set(steps.n_prefill) == {1} and set(steps.n_decode) == {1}
    assert list(steps.decode_context) == [99 + n for n in range(60)]
    assert (steps.seconds > 1e-3).all()


def stats(**details):
    known = {
        "iteration_index": 1, "num_ctx_requests": 1, "num_ctx_tokens": 512, "num_generation_requests": 3,
        "num_generation_tokens": 3, "elapsed_ms": 31.5, **details,
    }  # fmt: skip
    return SimpleNamespace(kv_cache_usage=0.25, iteration_details=SimpleNamespace(**known))


CONFIG = SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks=1000, block_size=16))


def test_a_stat_logger_writes_the_totals_of_a_step(vllm, log):
    logger = vllm_stats.StepLogger(CONFIG, engine_index=2)
    assert isinstance(logger, vllm)
    logger.log_engine_initialized()
    logger.record(stats(), None, None, engine_idx=2)
    logger.record(stats(is_dummy=True), None)
    logger.record(SimpleNamespace(kv_cache_usage=0.1, iteration_details=None), None)
    logger.record(None, None)
    logger.log()
    (row,) = rows(log)
    assert row.pop("time_s") > 1e9
    assert row == {
        "schema": "agentctl/steps/1", "engine": 2, "seconds": pytest.approx(0.0315), "prefill_tokens": 512,
        "n_prefill": 1, "n_decode": 3, "kv_tokens": 4000,
    }  # fmt: skip


def test_a_stat_logger_is_silent_unless_it_is_asked_to_write(vllm, tmp_path, monkeypatch):
    monkeypatch.delenv("AGENTCTL_STEPS", raising=False)
    monkeypatch.chdir(tmp_path)
    vllm_stats.StepLogger(CONFIG).record(stats(), None)
    assert list(tmp_path.iterdir()) == []


def test_the_kv_capacity_may_become_known_later(vllm, log):
    cache = SimpleNamespace(num_gpu_blocks=None, block_size=16)
    logger = vllm_stats.StepLogger(SimpleNamespace(cache_config=cache))
    logger.record(stats(), None)
    cache.num_gpu_blocks = 1000
    logger.record(stats(), None)
    assert ["kv_tokens" in row for row in rows(log)] == [False, True]


def test_an_engine_survives_a_log_that_cannot_be_written(vllm, monkeypatch, tmp_path):
    monkeypatch.setenv("AGENTCTL_STEPS", str(tmp_path / "no" / "such" / "folder" / "steps.jsonl"))
    logger = vllm_stats.StepLogger(CONFIG)
    logger.record(stats(), None)
    logger.record(stats(), None)


def test_a_path_may_name_the_engine(vllm, monkeypatch, tmp_path):
    monkeypatch.setenv("AGENTCTL_STEPS", str(tmp_path / "steps-{engine}.jsonl"))
    for engine in (0, 1):
        vllm_stats.StepLogger(CONFIG, engine).record(stats(), None)
    assert {path.name for path in tmp_path.iterdir()} == {"steps-0.jsonl", "steps-1.jsonl"}


def test_vllm_finds_the_stat_logger_by_its_entry_point(vllm):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (target,) = project["entry-points"]["vllm.stat_logger_plugins"].values()
    module, name = target.split(":")
    assert issubclass(getattr(import_module(module), name), vllm)


@pytest.mark.parametrize(("backend", "is_known"), [(None, True), ("uni", True), ("mp", False)])
def test_waiting_is_told_only_where_the_scheduler_s_process_runs_the_model(
    vllm, log, monkeypatch, backend, is_known
):
    """With workers of their own the scheduler's thread polls, and looks as if it always waited for a core."""
    start = Scheduler.__init__

    def configured(self, *arguments):
        start(self, *arguments)
        self.vllm_config.parallel_config.distributed_executor_backend = backend

    monkeypatch.setattr(Scheduler, "__init__", configured)
    scheduler = vllm_scheduler.StepScheduler([output(new=[("a", 0)], a=60)], {})
    scheduler.update_from_output(scheduler.schedule(), 0)
    assert ("wait_s" in rows(log)[0]) == (is_known and Path("/proc/thread-self/schedstat").exists())
