"""Power by phase, from a stand-in for NVML."""

import sys
from types import ModuleType

import pytest

from agentctl.estimators.power import phase_power
from agentctl.estimators.power_samples import read_power
from agentctl.inprocess import power
from agentctl.inprocess.plan import Room
from agentctl.inprocess.power import Nvml, find_nvml, sample_phases
from agentctl.inprocess.stepping import Prompts
from agentctl.inprocess.vllm_engine import VllmEngine

DRAWN = {"": 70_000, "idle": 80_000, "prefill": 650_000, "decode": 420_000}  # milliwatts


class Library(ModuleType):
    """Draws what the phase that is sampled draws; the second GPU a tenth more."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, gpus=1):
        super().__init__("pynvml")
        self.gpus, self.phase = gpus, lambda: ""

    def nvmlInit(self):
        if not self.gpus:
            raise self.NVMLError("no driver")

    def nvmlDeviceGetHandleByIndex(self, i):
        return i

    def nvmlDeviceGetPowerUsage(self, i):
        return DRAWN[self.phase()] * (1 + 0.1 * i)

    def nvmlDeviceGetClockInfo(self, i, kind):
        assert kind == self.NVML_CLOCK_SM
        return 1980


@pytest.mark.parametrize("gpus", [1, 2])
def test_each_phase_is_sampled_as_itself(vllm, tmp_path, monkeypatch, gpus):
    vllm()
    monkeypatch.setattr(power, "PHASE_S", 0.35)
    monkeypatch.setattr(power, "SETTLE_S", 0.02)
    monkeypatch.setattr(power, "INTERVAL_S", 0.01)
    library, samplers = Library(gpus), []
    start = power.Sampler.__enter__
    monkeypatch.setattr(power.Sampler, "__enter__", lambda self: samplers.append(self) or start(self))
    library.phase = lambda: samplers[0].phase if samplers else ""
    engine = VllmEngine(tmp_path, {}, eager=True, gpus=1)
    room = Room(16, 512, 512, 16, 1024, 4096)
    path = tmp_path / "power.jsonl"
    sample_phases(engine, room, Prompts(2048, 0, 0), Nvml(library, gpus), path)
    found = phase_power(read_power([path]), None, "phase").by_phase
    share = 1.0 if gpus == 1 else 2.1
    for phase in ("idle", "prefill", "decode"):
        assert found[phase].watts == pytest.approx(DRAWN[phase] * 1e-3 * share, rel=0.1)
    assert engine.step() is None  # nothing is left running


def test_without_nvml_or_without_a_gpu_there_is_no_power(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_nvml(1) is None
    monkeypatch.setitem(sys.modules, "pynvml", Library(gpus=0))
    assert find_nvml(1) is None
    monkeypatch.setitem(sys.modules, "pynvml", Library())
    assert isinstance(find_nvml(1), Nvml)


def test_watts_and_clock_are_in_their_units():
    library = Library()
    library.phase = lambda: "decode"
    assert Nvml(library, 1).read() == [(420.0, 1980)]
