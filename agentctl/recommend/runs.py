"""What has been measured already: every run under the hash of all that determines it.

A run is known by its candidate, its scenario, its load and the study (trace, replay, SLOs, seed, code). What
was found is appended to a file as it comes, so that a killed comparison goes on where it was; a run from the
file is the same to the last bit as the run itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import msgspec
import numpy as np

import agentctl
from agentctl.files import canonical_json, lock
from agentctl.policies._names import file_and_function, is_user_policy
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Measured
from agentctl.simulate import plain
from agentctl.slo import Slo
from agentctl.workload import Workload
from agentctl.workload.fleet import BY_REQUEST

RUNS_FILE = "runs.jsonl"
CODE = ("sim", "workload", "metrics", "policies", "estimators", "recommend")  # what a run's result hangs on


class _Line(msgspec.Struct):
    key: str
    measured: dict[str, float | int | None]


class Runs:
    """Measured runs by key. `resumed` counts those that a file knew."""

    def __init__(self, file: IO[bytes] | None = None, known: dict[str, bytes] | None = None) -> None:
        self._file = file
        self._lines = known or {}
        self._known = {key: _measured(line) for key, line in self._lines.items()}
        self._used: set[str] = set()
        self.resumed = len(self._known)

    def get(self, key: str) -> Measured | None:
        return self._known.get(key)

    def add(self, key: str, of: str, scenario: Scenario, load: float, measured: Measured) -> None:
        """Keep a run and write it down, unless it is known."""
        self._used.add(key)
        if key in self._known:
            return
        changed = {k: v for k, v in asdict(scenario).items() if v != getattr(Scenario(), k)}
        told = {
            "key": key,
            "candidate": of,
            "scenario": changed,
            "load": load,
            "measured": measured._asdict(),
        }
        self._known[key], self._lines[key] = measured, canonical_json(told)
        if self._file:
            self._file.write(self._lines[key])
            self._file.flush()

    def lines(self) -> dict[str, bytes]:
        """All that is known, as written."""
        return dict(self._lines)

    def content(self) -> bytes:
        """All runs that this comparison needed, one a line, by key."""
        return b"".join(self._lines[key] for key in sorted(self._used))


@contextmanager
def kept_runs(folder: Path | None) -> Iterator[Runs]:
    """Runs that survive a kill: in a file beside the run folder until the folder is there, then in it.

    Those of an older folder of that name are known, too. None keeps nothing.
    """
    if folder is None:
        yield Runs()
        return
    beside = folder.parent / f".{folder.name[:80]}.runs"
    beside.parent.mkdir(parents=True, exist_ok=True)
    with lock(beside):
        known = {**_read(folder / RUNS_FILE), **_read(beside)}
        whole = b"".join(known.values())
        beside.write_bytes(whole)  # without a line that a kill cut in two
        try:
            with beside.open("ab") as file:
                yield Runs(file, known)
            beside.unlink(missing_ok=True)
        finally:
            if beside.exists() and not beside.stat().st_size:  # it ended before anything was measured
                beside.unlink()


def _read(path: Path) -> dict[str, bytes]:
    found = {}
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError:
        return {}
    for line in lines:
        try:
            one = msgspec.json.decode(line, type=_Line)
        except msgspec.MsgspecError:
            continue  # cut by a kill, or of another version
        if line.endswith(b"\n") and set(one.measured) == set(Measured._fields):
            found[one.key] = line
    return found


def _measured(line: bytes) -> Measured:
    values = msgspec.json.decode(line, type=_Line).measured
    whole = {key: int(values[key] or 0) for key in ("requests", "rejected")}
    return Measured(**{**values, **whole})  # type: ignore[arg-type]


def key_of(study: str, candidate: str, scenario: Scenario, rung: int) -> str:
    return _digest([study, candidate, asdict(scenario), rung])


def study_digest(workload: Workload, slos: Sequence[Slo], seed: int) -> str:
    """Of everything that all runs have in common."""
    arrays = hashlib.blake2b(digest_size=16)
    for values in workload.requests:  # what the replay mode and the reader's options made of the trace
        arrays.update(values.tobytes())
    if fleet := workload.fleet:
        told = (getattr(fleet, name) for name in (*BY_REQUEST, "prompt_price", "output_price"))
        parts = (*told, *(fleet.means or ()), *(fleet.remaining or ()))
        for values in parts:
            arrays.update(np.ascontiguousarray(values).tobytes())
        arrays.update(repr((fleet.models, fleet.lam_per_microdollar)).encode())
    known = [workload.trace_digest, workload.replay, workload.starts_synthesised, arrays.hexdigest()]
    known.append(workload.arriving.facts() if workload.arriving else None)
    return _digest([agentctl.__version__, _code(), *known, [slo.text for slo in slos], seed])


def candidate_digest(candidate: Candidate) -> str:
    policy, cluster = candidate.policy, asdict(candidate.cluster)
    for pool in cluster["pools"]:  # neither name nor origin of a profile changes a run
        pool["profile"] = {
            k: pool["profile"][k]
            for k in ("batch_time", "tensor_parallel", "fit", "kv_bytes_per_token", "gpu", "power")
        }
    source = file_and_function(policy.name)[0] if is_user_policy(policy.name) else None
    own = _hash_of([Path(source)]) if source else None
    return _digest([policy.name, plain(policy.params), policy.tie, own, cluster])


@cache
def _code() -> str:
    """Of the code that makes a run: an update makes everything unknown."""
    package = _folder(agentctl)
    files = [file for name in CODE for file in sorted((package / name).glob("*.py"))]
    files += [f for name in ("policies", "estimators") for f in sorted((package / name).glob("*.toml"))]
    return _hash_of([package / "slo.py", package / "pool_power.py", *files])


def _folder(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__).parent


def _hash_of(files: Sequence[Path]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
