"""The frame around all commands: help, version, typing mistakes, completion, and what may be imported."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from agentctl import __version__
from agentctl.cli import COMMANDS
from agentctl.cli.groups import leaves, load

HELPERS = {
    "boundary",
    "command",
    "config",
    "groups",
    "inputs",
    "main",
    "options",
    "reports",
    "streams",
    "__init__",
}
HEAVY = {"polars", "pyarrow", "numpy", "numba", "scipy", "sklearn", "plotly", "rich", "msgspec"}


def test_every_command_is_one_file_or_package_with_a_function_of_its_name():
    folder = Path(import_module("agentctl.cli").__file__).parent
    packages = {file.parent.name for file in folder.glob("*/__init__.py")}
    assert {file.stem for file in folder.glob("*.py")} - HELPERS | packages == set(COMMANDS)
    for name in COMMANDS:
        assert callable(getattr(import_module(f"agentctl.cli.{name}"), name))


def test_every_source_of_calibrate_is_one_file_that_explains_itself(agentctl):
    group = load("agentctl.cli.calibrate", "")
    told = " ".join(agentctl("calibrate", "--help").out.split())
    assert set(group.names) >= {"steps"}
    for source, purpose in group.names.items():
        assert purpose in told
        assert agentctl("calibrate", source, "--help").out.startswith(f"Usage: agentctl calibrate {source} ")


def test_a_mistyped_source_gets_a_suggestion(agentctl):
    done = agentctl("calibrate", "stpes")
    assert (done.code, done.err) == (2, "error: no such command 'stpes'\n\nhint: did you mean steps?\n")


def test_help_names_every_command(agentctl):
    done = agentctl("--help")
    assert done.code == 0 and done.err == ""
    for name, purpose in COMMANDS.items():
        assert name in done.out and purpose in done.out


def test_no_arguments_show_the_help(agentctl):
    assert agentctl().out == agentctl("--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_every_option(agentctl, name):
    done = agentctl(name, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: agentctl {name} ")
    for command in leaves(name):
        out = done.out if command.name == name else agentctl(name, command.name, "--help").out
        for param in command.params:
            assert param.help and param.help[-1] in ".)", param.name
            assert param.param_type_name == "argument" or param.opts[0] in out


def test_help_imports_nothing_heavy():
    """What keeps `--help` at a tenth of a second (benchmarks/help_time.py measures it)."""
    code = (
        "import sys\n"
        "from agentctl.cli.main import main\n"
        "main(['--help']); main(['recommend', '--help'])\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_version_is_the_package_version(process):
    assert process("--version").out == f"agentctl {__version__}\n"


def test_a_mistyped_command_gets_a_suggestion(agentctl):
    done = agentctl("analyse", "x")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: no such command 'analyse'\n\nhint: did you mean analyze?\n"


def test_a_mistyped_option_gets_a_suggestion(agentctl):
    done = agentctl("policies", "--jsn")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: no such option: --jsn\n\nhint: did you mean --json?\n"


def test_a_missing_argument_points_to_the_help(agentctl):
    done = agentctl("analyze")
    assert done.code == 2
    assert done.err == "error: missing argument 'TRACE'\n\nhint: see agentctl analyze --help\n"


def test_a_value_of_the_wrong_kind_names_its_option(agentctl):
    done = agentctl("simulate", "x.trace", "--seed", "many")
    assert done.code == 2
    assert done.err.startswith("error: --seed: is 'many'; expected a whole number\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "x", "--seed", -1), "--seed: is '-1'; expected at least 0"),
        (("analyze", "x", "--first-turn-share", "nan"), "--first-turn-share: is 'nan'; expected at most 1"),
        (
            ("ingest", "x", "-o", "y", "--sessions", "some"),
            "--sessions: 'some' is not one of 'auto'",
        ),
        (("simulate", "x", "--engines", "1.5"), "--engines: is '1.5'; expected a whole number"),
    ],
)
def test_a_value_out_of_range_is_said_with_what_would_be_right(agentctl, arguments, message):
    done = agentctl(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_the_shell_completes_commands(process):
    done = process(_AGENTCTL_COMPLETE="complete_bash", COMP_WORDS="agentctl an", COMP_CWORD="1")
    assert done.out.split() == ["analyze"]
