"""Does each program understand what we write for it, and start with it?"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from conformance.routers import deployed, free_port, running, written
from environments import scripts_of

from agentctl.emit import sglang_router, smg, vllm_router
from agentctl.policies.base import policy_names

TARGETS = {target.NAME: target for target in (sglang_router, smg, vllm_router)}
MODULES = {"sglang-router": "sglang_router", "smg": "smg", "vllm-router": "vllm_router"}
OWN = [name for name in policy_names() if name.partition(":")[0] in TARGETS]
ALIVE_S, START_S, REFUSED_S = 2.0, 20.0, 20.0

PARSER = """
import argparse, json, sys
from MODULE.router_args import RouterArgs
parser = argparse.ArgumentParser()
RouterArgs.add_cli_args(parser)
if len(sys.argv) > 1:
    RouterArgs.from_cli_args(parser.parse_args(sys.argv[1:]))
print(json.dumps({
    flag: {"type": getattr(a.type, "__name__", None), "choices": list(a.choices or []), "nargs": a.nargs}
    for a in parser._actions for flag in a.option_strings
}))
"""


def parsed(program: str, *arguments: str) -> dict[str, dict]:
    """The program's own parser, after it has read the arguments."""
    script = PARSER.replace("MODULE", MODULES[program])
    python = scripts_of(program) / "python"
    run = subprocess.run(
        [python, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr[-1000:]
    return json.loads(run.stdout.splitlines()[-1])


def dead(n: int) -> list[str]:
    """Addresses where nobody listens."""
    ports = [free_port() for _ in range(n)]
    return [f"http://127.0.0.1:{port} tcp://127.0.0.1:{port}" for port in ports]


def refuses(name: str, folder: Path, *more: str, **environment: str) -> bool:
    """Whether the program ends by itself, with an error."""
    emitted, _ = deployed(name, {}, 2)
    script = written(dict(emitted.files), folder, dead(2))
    with running(name.partition(":")[0], script, *more, **environment) as router:
        try:
            return router.process.wait(REFUSED_S if more else ALIVE_S) != 0
        except subprocess.TimeoutExpired:
            return False


@pytest.mark.parametrize("program", TARGETS)
def test_every_flag_of_our_table_is_one_of_the_program_and_takes_the_same(program):
    theirs = parsed(program)
    for flag, ours in TARGETS[program].PROGRAM.flags[TARGETS[program].VERSIONS[0]].items():
        assert flag in theirs, flag
        its = theirs[flag]
        assert list(ours.choices) == its["choices"] or set(ours.choices) == set(its["choices"]), flag
        is_switch = its["nargs"] == 0
        assert is_switch == (ours.least is None and not ours.choices and not ours.text), flag
        if ours.least is not None:
            assert its["type"] == ("int" if ours.whole else "float"), flag


@pytest.mark.parametrize("name", OWN)
def test_its_own_parser_takes_the_command(name):
    emitted, _ = deployed(name, {}, 2)
    flags = json.loads(emitted.files["router.json"])["flags"]
    parsed(name.partition(":")[0], *(str(w) for pair in flags.items() for w in pair if w is not None))


@pytest.mark.parametrize("name", OWN)
def test_it_starts_before_dead_engines(name, tmp_path, record_property):
    """It says that it starts, with our policy, and is still there two seconds later."""
    emitted, _ = deployed(name, {}, 2)
    script = written(dict(emitted.files), tmp_path, dead(2))
    begun, said = time.monotonic(), ""
    with running(name.partition(":")[0], script) as router:
        while "Starting router on" not in said and time.monotonic() < begun + START_S:
            time.sleep(0.02)
            said = router.log.read_text()
        record_property("starts", f"{time.monotonic() - begun:.1f} s")
        time.sleep(ALIVE_S)
        assert router.process.poll() is None and "Starting router on" in said, said[-1500:]


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [
        ("sglang-router:cache_aware", "--cache-threshold", "1.7"),
        ("sglang-router:cache_aware", "--balance-rel-threshold", "0.5"),
        ("smg:cache_aware", "--cache-threshold", "1.7"),
        ("smg:cache_aware", "--balance-rel-threshold", "0.5"),
        ("smg:least_load", "--least-load-default-throughput", "-1"),
        ("smg:prefix_hash", "--prefix-hash-load-factor", "0.5"),
        ("vllm-router:cache_aware", "--cache-threshold", "1.7"),
        ("vllm-router:cache_aware", "--balance-rel-threshold", "0.5"),
        ("vllm-router:kv_aware", "--router-temperature", "-1"),
    ],
)
def test_what_we_refuse_the_program_refuses_at_its_start(name, flag, value, tmp_path):
    assert refuses(name, tmp_path, flag, value)


def test_program_scheduling_starts_with_the_costs_of_the_calibration(tmp_path):
    assert not refuses("vllm-router:sticky_least_loaded", tmp_path, PROGRAM_SCHEDULING="1")


def paths(document: dict, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for key, value in document.items():
        found += paths(value, (*before, key)) if isinstance(value, dict) else [(*before, key)]
    return found


DOCUMENT = json.loads(deployed("vllm-router:sticky_least_loaded", {}, 2)[0].files["program-scheduling.json"])


@pytest.mark.parametrize("path", paths(DOCUMENT), ids=".".join)
def test_every_key_of_program_scheduling_is_read(path, tmp_path):
    """A key that the router does not know is ignored; one that it reads must not be a list."""
    document = json.loads(json.dumps(DOCUMENT))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = ["nonsense"]
    emitted, _ = deployed("vllm-router:sticky_least_loaded", {}, 2)
    files = dict(emitted.files) | {"program-scheduling.json": json.dumps(document)}
    script = written(files, tmp_path, dead(2))
    with running("vllm-router", script, PROGRAM_SCHEDULING="1") as router:
        assert router.process.wait(REFUSED_S) != 0
    assert "Invalid program_scheduling_config_json" in router.log.read_text()
