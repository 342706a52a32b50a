"""Kernels that tests may call: by themselves they have no entry from Python (agentctl.sim.jit)."""

from numba import config, njit


def from_python(kernel):
    if config.DISABLE_JIT:
        return kernel

    @njit
    def call(*arguments):
        return kernel(*arguments)

    return call
