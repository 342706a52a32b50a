"""Logs are hostile: what no source of ours may do, seen by reading all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("agentctl", "analyzers", "estimators", "policies")
SOURCES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
BANNED_MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"),
    *("socket", "http", "urllib", "requests", "httpx", "ftplib", "smtplib"),  # nothing calls home
}
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "breakpoint"}
BANNED_METHODS = {
    *("extractall", "unpack_archive"),  # archives are streams, never unpacked
    *("system", "popen"),
    *("read_pickle", "to_pickle", "load_module", "exec_module", "full_load", "unsafe_load"),
}
OBJECT_SAVERS = {"np.save", "np.savez", "np.savez_compressed"}  # they pickle objects unless told not to


def faults(source: str) -> Iterator[str]:
    """What a source must not do, as `line: what`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"{node.lineno}: {a.name}" for a in node.names if top(a.name) in BANNED_MODULES)
        elif isinstance(node, ast.ImportFrom) and top(node.module or "") in BANNED_MODULES:
            yield f"{node.lineno}: {node.module}"
        elif isinstance(node, ast.Call):
            yield from (f"{node.lineno}: {what}" for what in call_faults(node))


def call_faults(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in BANNED_CALLS or (isinstance(call.func, ast.Attribute) and call.func.attr in BANNED_METHODS):
        yield name
    for option in ("shell", "allow_pickle"):
        if option in given and not is_false(given[option]):
            yield f"{name}({option})"
    if name in OBJECT_SAVERS and "allow_pickle" not in given:
        yield f"{name} without allow_pickle=False"


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def top(module: str) -> str:
    return module.split(".")[0]


# Code that is run on purpose, none of it from a log: one call of each in each file.
RUNS_CODE = {
    "policies/_user.py": "the policy file that the user names",
    "agentctl/sim/bound.py": "a wrapper of ours around a policy, made from a text of ours",
}


# Talks to the endpoint that the user names, and to nobody else.
TALKS = {"agentctl/endpoint/client.py": "httpx"}


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_source_unpickles_evaluates_unpacks_or_calls_home(file):
    allowed = ["exec", "compile"] if str(file.relative_to(ROOT)) in RUNS_CODE else []
    allowed += [TALKS[name]] if (name := str(file.relative_to(ROOT))) in TALKS else []
    assert [fault.split(": ")[1] for fault in faults(file.read_text())] == allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from yaml import load",
        "import urllib.request",
        "eval('1')",
        "exec(text)",
        "import _pickle",
        "import numpy, pickle",
        "from joblib import load",
        "frame = pandas.read_pickle(path)",
        "spec.loader.exec_module(module)",
        "tar.extractall()",
        "np.load(f, allow_pickle=True)",
        "np.save(f, a)",
        "subprocess.run(line, shell=True)",
    ],
)
def test_the_scan_finds_each_kind_of_fault(source):
    assert len(list(faults(source))) == 1


def test_there_are_sources_to_scan():
    assert len(SOURCES) > 40
