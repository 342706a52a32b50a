"""The shape of the house: imports point one way, in no circle, and the three folders are links."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "agentctl"
LAYERS = (
    {"errors", "schema", "present", "files", "toml", "recorders", "start_up", "distinct", "engines"},
    {"trace", "result"},
    {
        *("formats", "ingest", "analyzers", "estimators"),
        *("labels", "labels_file", "predictions", "prediction_rows"),
    },
    {"cluster", "pool_power", "profile", "profile_file", "tier_presets", "workload", "metrics", "slo", "sim"},
    {"policies"},
    {
        "analyze",
        "simulate",
        "fleet",
        "fleet_tau",
        "fleet_means",
        "fleet_use",
        "fleet_curves",
        "simulate_sections",
        "side_by_side",
        "warm_up",
        "tier_use",
        "hand_overs",
        "energy_use",
        "tier_picture",
        "explain",
        "regret",
        "hot_spots",
        "inside",
        "recommend",
        "report",
        "emit",
        "export",
        "export_text",
        "synth",
        "logged",
        "logged_hits",
        "engine_meta",
        "calibrate_log",
        "calibrate_log_sections",
        "calibrate_log_document",
        "calibrate_log_scale",
        "calibrate",
        "calibrate_sections",
        "calibrate_routers",
        "coverage",
        "endpoint",
        "inprocess",
        "calibrate_engine",
        "calibrate_engine_sections",
        "calibrate_endpoint",
        "calibrate_endpoint_mixed",
        "calibrate_endpoint_sections",
        "calibrate_prior",
        "calibrate_lps",
        "calibrate_lps_log",
        "calibrate_labels",
        "calibrate_labels_sections",
        "validate",
        "validate_endpoint",
        "validate_endpoint_pace",
        "validate_endpoint_sections",
        "calibrate_lps_sections",
        "conserve",
        "isolated",
    },
    {"cli"},
)
LAYER = {part: level for level, parts in enumerate(LAYERS) for part in parts}
# Estimators that play the simulator's own scheduler stand on it, and not below it like the others.
ON_THE_SIMULATOR = ("agentctl.estimators.sfs", "agentctl.estimators.ttft")
LINKS = ("analyzers", "estimators", "policies")


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    files = [*PACKAGE.glob("*.py"), *PACKAGE.glob("*/**/*.py")]
    files += [file for link in LINKS for file in (PACKAGE / link).glob("**/*.py")]
    names = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    return {
        ".".join(parts[:-1] if parts[-1] == "__init__" else parts): file
        for parts, file in zip(names, files, strict=True)
    }


MODULES = modules()


def imports(file: Path, *, at_load_only: bool = False) -> Iterator[str]:
    """Dotted names that a file imports, `from a import b` as a.b when that is a module of ours."""
    for node in walk(ast.parse(file.read_text()), at_load_only):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & set(MODULES)
            yield from inner or {node.module}


def walk(tree: ast.AST, at_load_only: bool) -> Iterator[ast.AST]:
    """All nodes, or only those that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if at_load_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if at_load_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from walk(node, at_load_only)


def part_of(module: str) -> str:
    return module.split(".")[1]


def level_of(module: str) -> int:
    return LAYER["sim" if module.startswith(ON_THE_SIMULATOR) else part_of(module)]


@pytest.mark.parametrize("module", [name for name in MODULES if name != "agentctl"])
def test_imports_point_one_way(module):
    for imported in imports(MODULES[module]):
        if imported.startswith("agentctl."):
            assert level_of(imported) <= level_of(module), f"{module} imports {imported}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        name: {i for i in imports(file, at_load_only=True) if i in MODULES} for name, file in MODULES.items()
    }
    done: set[str] = set()
    while ready := {name for name, needs in graph.items() if name not in done and needs <= done | {name}}:
        done |= ready
    assert sorted(set(graph) - done) == []


def test_the_simulator_knows_no_policy():
    for name, file in MODULES.items():
        if part_of(f"{name}.") == "sim":
            assert not [module for module in imports(file) if module.startswith("agentctl.policies")]


def test_nobody_imports_the_folders_by_their_bare_names():
    files = [*MODULES.values(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    for file in files:
        assert not {name.split(".")[0] for name in imports(file)} & {*LINKS, "click"}, file


@pytest.mark.parametrize("name", LINKS)
def test_the_links_are_relative(name):
    assert (PACKAGE / name).is_symlink()
    assert (PACKAGE / name).readlink() == Path("..") / name
