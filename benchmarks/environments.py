"""Real programs in virtual environments of their own, made when they are first asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAMS = {"sglang-router": "0.3.2", "smg": "1.13.0", "vllm-router": "0.1.17", "ai-dynamo": "1.6.1"}
ALONE = {"ai-dynamo": ("ai-dynamo-runtime==1.6.1", "msgspec", "pyyaml", "packaging")}  # all else is for GPUs
DEFAULT = Path("~/.cache/agentctl/programs").expanduser()
INSTALL_S = 600


def scripts_of(program: str, base: Path = DEFAULT) -> Path:
    """The folder of the program's scripts and its Python. Needs a package index the first time."""
    place = base / f"{program}-{PROGRAMS[program]}"
    if not (place / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=INSTALL_S)
        install = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        needed = ALONE.get(program, ())
        if needed:
            subprocess.run([*install, *needed], check=True, timeout=INSTALL_S)
        own = [*(["--no-deps"] if needed else []), f"{program}=={PROGRAMS[program]}"]
        subprocess.run([*install, *own], check=True, timeout=INSTALL_S)
        (place / "installed").touch()
    return place / "bin"
