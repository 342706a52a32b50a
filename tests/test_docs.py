"""What the documentation shows is what happens: every transcript is run, every command is documented.

A transcript is a fenced block marked `console`: `$ agentctl ...` lines, each followed by what a terminal of
100 columns then shows on stdout. A line `...` stands for any number of lines. A `python` block beginning with
`# NAME.py`, or a `toml` one with `# NAME.toml`, is a file that transcripts find. To write all transcripts
anew (those with `...` excepted): python tests/test_docs.py
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agentctl.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = sorted({*PAGES, *ROOT.glob("*.md"), ROOT / "sample_traces" / "README.md"})
SESSIONS = ("tutorial.md",)  # pages whose transcripts follow each other in one folder
PROGRAM = [sys.executable, "-m", "agentctl.cli.main"]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def transcripts() -> list[tuple[str, str]]:
    """(page, block) of every transcript; those of a session are one."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        whole = ["".join(blocks)] if page.name in SESSIONS else blocks
        found += [(page.name, block) for block in whole]
    return found


def lay_out(page: Path, folder: Path) -> None:
    """What the commands of a page find where they run."""
    (folder / "sample_traces").symlink_to(ROOT / "sample_traces")
    block = r"^```(?:python|toml)\n# (\w+\.(?:py|toml))\n(.*?)^```"
    files = re.findall(block, page.read_text(), re.DOTALL | re.MULTILINE)
    for name, text in files:
        (folder / name).write_text(text)


def steps(block: str) -> list[tuple[str, str]]:
    """(command, expected output) of each step of a block."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    assert parts[0] == "", "a transcript begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def shown(command: str, folder: Path) -> str:
    """What a terminal shows on stdout; colours are switched off, bold and dim are taken out."""
    words = shlex.split(command)
    assert words[0] == "agentctl"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
    environment = {**clean, "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "TERM": "xterm"}
    master, terminal = pty.openpty()
    run = subprocess.Popen(
        [*PROGRAM, *words[1:]], cwd=folder, env=environment, stdout=terminal, stderr=subprocess.PIPE
    )
    os.close(terminal)
    output = bytearray()
    try:
        while piece := os.read(master, 65536):
            output += piece
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    os.close(master)
    _, errors = run.communicate()
    assert run.returncode == 0, errors.decode()
    lines = ESCAPES.sub("", output.decode()).replace("\r\n", "\n").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def matches(expected: str, output: str) -> bool:
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(f"{line}\n")
        for line in expected.rstrip("\n").split("\n")
    )
    return re.fullmatch(pattern, output.strip("\n") + "\n") is not None


@pytest.mark.parametrize(("page", "block"), transcripts(), ids=lambda value: value[:40].split("\n")[0])
def test_a_transcript_shows_what_happens(page, block, tmp_path):
    lay_out(next(path for path in PAGES if path.name == page), tmp_path)
    for command, expected in steps(block):
        output = shown(command, tmp_path)
        assert matches(expected, output), f"{page}: `{command}` shows\n{output}\nnot\n{expected}"


def test_there_are_transcripts():
    assert transcripts()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name):
    assert any(f"agentctl {name}" in page.read_text() for page in PAGES)


def test_three_dots_stand_for_any_lines_and_nothing_else_is_loose():
    assert matches("a\n...\nd\n", "a\nb\nc\nd\n")
    assert not matches("a\n...\nd\n", "a\nb\n")
    assert not matches("a\n", "ab\n")


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def rewrite(page: Path) -> None:
    """Replace the output of every transcript without `...` by what happens now."""
    import tempfile

    text = page.read_text()
    for name, block in transcripts():
        if name == page.name:
            with tempfile.TemporaryDirectory() as folder:
                lay_out(page, Path(folder))
                for command, expected in steps(block):
                    output = shown(command, Path(folder))
                    if "\n...\n" not in f"\n{expected}":
                        old, new = (f"$ {command}\n{told.strip()}\n" for told in (expected, output))
                        text = text.replace(old, new)
    page.write_text(text)


if __name__ == "__main__":
    for each in PAGES:
        rewrite(each)
