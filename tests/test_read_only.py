"""agentctl runs from a read-only image by a user without a home."""

import os
import subprocess
import sys
from pathlib import Path

from agentctl import __version__

CODE = "import os, agentctl; from numba import njit\nprint(os.environ.get('NUMBA_CACHE_DIR', ''))"


def cache_folder(monkeypatch_access: str, **environment: str) -> str:
    code = f"import os; access = os.access; os.access = {monkeypatch_access}\n{CODE}"
    clean = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_compiled_code_goes_to_the_users_cache_apart_for_every_version(tmp_path):
    folder = cache_folder("access", XDG_CACHE_HOME=str(tmp_path))
    assert folder == str(tmp_path / "agentctl" / f"numba-{__version__}")
    assert Path(folder).is_dir()


def test_numba_gets_a_private_folder_that_goes_with_the_run_where_nothing_is_writable():
    folder = cache_folder("lambda path, mode: False")
    assert Path(folder).name.startswith("agentctl-numba-")
    assert not Path(folder).exists()


def test_the_users_own_choice_stands():
    assert cache_folder("lambda path, mode: False", NUMBA_CACHE_DIR="/chosen") == "/chosen"
