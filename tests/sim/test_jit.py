"""Whether compiled code is at hand."""

from agentctl.sim.jit import is_compiled_here


def test_an_empty_cache_holds_no_simulator_and_one_with_the_loop_does(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not is_compiled_here()
    (tmp_path / "sim_0").mkdir()
    (tmp_path / "sim_0" / "compiled.replay-28.py311.nbi").touch()
    assert is_compiled_here()
