"""What is installed is what is here: sdist and wheel hold the whole package and nothing else, and a wheel in
an environment of its own gives the bytes that the checkout gives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "agentctl"
LINKS = ("analyzers", "estimators", "policies")
NOT_SOURCES = (".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
TRACE = ROOT / "sample_traces" / "weka_small.jsonl.gz"
DEMO = (  # the README's, small
    *("--profile", "h100-qwen3-8b", "--engines", "2", "--replicates", "2", "--policies"),
    *("session-sticky,round-robin", "--slo", "ttft < 60s @ 50%", "--seed", "7", "--engine", "serial"),
)
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def shipped() -> set[str]:
    """Every module and data file of the package, as a path from the root; links are followed."""
    folders = (PACKAGE, *(PACKAGE / link for link in LINKS))
    files = {file for folder in folders for file in folder.glob("**/*") if file.is_file()}
    names = {file.relative_to(ROOT) for file in files}
    return {
        str(name)
        for name in names
        if name.suffix != ".pyc" and not any(part.startswith(".") for part in name.parts)
    }


def build(what: str, source: Path, output: Path) -> Path:
    """`sdist` or `wheel` of a folder of sources, with the setuptools that is here; nothing is downloaded."""
    output.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{what}", str(output)],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (built,) = output.iterdir()
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path, Path]:
    """(wheel of the sources, sdist, wheel of the unpacked sdist), from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    sdist = build("sdist", source, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    wheel = build("wheel", source, folder / "wheel")
    return wheel, sdist, build("wheel", unpacked, folder / "again")


def content(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_holds_the_whole_package_and_nothing_else(built):
    assert content(built[0]) == shipped()
    assert {name.split("/")[0] for name in content(built[0])} == {"agentctl"}
    assert {"agentctl/policies/smetric.py", "agentctl/conserve/ORIGIN.md"} <= shipped()


@pytest.mark.slow
def test_the_sdist_gives_the_same_wheel_and_holds_no_tests(built):
    wheel, sdist, again = built
    assert content(again) == content(wheel)
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    tops = {name.split("/")[1] for name in names if "/" in name}
    assert tops & {"tests", "benchmarks", "shared", "sample_traces"} == set()
    assert {"agentctl", "pyproject.toml", "README.md", "CHANGELOG.md", "SECURITY.md"} <= tops


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The `agentctl` of a new environment that has the wheel alone, and sees the packages of this one.

    A path in a .pth file is not searched for .pth files of its own: an editable install is not seen there.
    """
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", str(built[0])], check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    here = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "packages_of_the_tests.pth").write_text("".join(f"{path}\n" for path in here))
    told = subprocess.run(
        [python, "-c", "import agentctl; print(agentctl.__file__)"],
        check=True, capture_output=True, text=True, env=environment(), cwd=folder,
    )  # fmt: skip
    assert Path(told.stdout.strip()) == site / "agentctl" / "__init__.py"
    return folder / "bin" / "agentctl"


def environment() -> dict[str, str]:
    """Without settings and paths of who runs the tests."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("AGENTCTL_", "PYTHON"))}


@pytest.mark.slow
def test_a_wheel_elsewhere_gives_the_bytes_of_the_checkout(installed, tmp_path):
    results = []
    compiled = {"NUMBA_CACHE_DIR": str(tmp_path / "numba")}  # the cache of who runs the tests stays as it is
    for name, program, more in (
        ("wheel", [str(installed)], compiled),
        ("checkout", [sys.executable, "-m", "agentctl.cli.main"], {"PYTHONPATH": str(ROOT)}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        done = subprocess.run(
            [*program, "recommend", str(TRACE), *DEMO, "-o", "run", "-q"],
            cwd=folder,
            env={**environment(), **more},
            capture_output=True,
            text=True,
        )
        assert done.returncode in (0, 3), done.stderr
        results.append((done.returncode, (folder / "run" / "result.json").read_bytes()))
    assert results[0] == results[1] and len(results[0][1]) > 10_000


@pytest.mark.slow
def test_files_of_the_package_are_found_in_the_wheel(installed, tmp_path):
    for words in (["policies", "vllm-router:power_of_two"], ["policies", "smetric"], ["--version"]):
        done = subprocess.run(
            [str(installed), *words], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
