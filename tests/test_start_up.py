"""What start-up leaves out is there when it is needed."""

import subprocess
import sys

PROGRAM = """
import sys
from agentctl.start_up import import_numba_without_scipy
import_numba_without_scipy()
import numpy as np
from numba import njit
one = njit(lambda x: x + 1)(1)
assert one == 2 and "scipy.linalg" not in sys.modules
product = njit(lambda a, b: a @ b)(np.eye(2), np.ones((2, 1)))
assert product.tolist() == [[1.0], [1.0]] and "scipy.linalg.cython_blas" in sys.modules
"""


def test_numba_starts_without_scipy_and_finds_it_for_linear_algebra():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
