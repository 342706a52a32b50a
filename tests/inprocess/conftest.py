"""vLLM that is none: `import vllm` finds the stand-in of oracles/fake_vllm.py, and its clock is virtual."""

import sys
from types import SimpleNamespace

import pytest
from oracles import fake_vllm

from agentctl.inprocess import clocks, vllm_engine

TRUTH = {"b0": 0.0124, "b_prefill": 7.8e-4, "b_decode": 1.0e-3, "b_context": 3.0e-6, "b_attention": 4.7e-7}


@pytest.fixture
def vllm(monkeypatch):
    """Install the stand-in; its batches take TRUTH and up to 5 % more or less, as measured ones do."""

    def install(device="cpu", threads=1, noise=0.05):
        for name, module in fake_vllm.modules(device, threads).items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(fake_vllm.LLMEngine, "times", staticmethod(fake_vllm.Times(TRUTH, noise)))
        monkeypatch.setattr(fake_vllm.LLMEngine, "started", [])
        calendar = SimpleNamespace(time=lambda: 1.8e9 + busy(), perf_counter=busy)
        monkeypatch.setattr(vllm_engine, "time", calendar)
        monkeypatch.setattr(clocks.CpuClock, "mark", staticmethod(busy))
        for name in ("VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE"):
            monkeypatch.setenv(name, "")
        monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
        return fake_vllm.LLMEngine

    def busy():
        return fake_vllm.LLMEngine.started[-1].core.busy

    return install
