"""What a command reads: a dataset, or raw logs that are ingested into a temporary one first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentctl.cli.streams import Streams
from agentctl.errors import AgentctlError, UsageError

if TYPE_CHECKING:
    from agentctl.cluster import Cluster
    from agentctl.engines import Engine
    from agentctl.trace import Trace


def reading_engine(name: str | None, workers: int | None, address: str | None) -> Engine:
    """Where files are read: here, one after the other, unless something else is asked for."""
    from agentctl.engines import Serial, engine_of

    return engine_of(name, workers, address, forks=False) if name or workers or address else Serial()


@contextmanager
def open_input(paths: Sequence[Path], streams: Streams, engine: Engine | None = None) -> Iterator[Trace]:
    """The trace in `paths`: one dataset folder, or log files with the defaults of `agentctl ingest`, read
    by `engine`."""
    from agentctl.trace import open_trace

    if len(paths) == 1 and paths[0].is_dir():
        yield open_trace(paths[0])
        return
    from agentctl.ingest.build import IngestOptions, ingest

    with tempfile.TemporaryDirectory(prefix="agentctl-") as folder:
        output = Path(folder) / f"{trace_name(paths[0])}.trace"
        try:
            with streams.progress() as progress:
                report = ingest(list(paths), output, IngestOptions(), engine=engine, progress=progress)
        except AgentctlError as error:
            if error.hint and error.hint.startswith("--"):  # only ingest has these flags
                cure = error.hint.split(" (place and reason")[0]  # in a file that goes with the folder
                error.hint = f"make a dataset first: agentctl ingest LOGS... -o NAME.trace, where {cure}"
            raise
        streams.note(report.sections[0].sentence)
        yield report.trace


def announce_compilation(streams: Streams) -> None:
    """Say why the first simulation on a machine takes a minute longer."""
    from agentctl.sim.jit import is_compiled_here

    if not is_compiled_here():
        streams.note("compiling the simulator, once for this version: about half a minute")


def trace_name(path: Path) -> str:
    """`day.jsonl.gz` -> `day`; standard input has no name of its own."""
    from agentctl.ingest.source import safe_name

    return safe_name(path.name).split(".")[0] or "trace" if str(path) != "-" else "stdin"


def the_cluster(cluster: Path | None, profile: str | None, engines: int | None) -> Cluster:
    """The cluster in a file, or one pool of a profile; `engines` is its size. Raises UsageError."""
    from agentctl.cluster import MAX_ENGINES, cluster_of, load_cluster
    from agentctl.profile import load_profile

    if (cluster is None) == (profile is None):
        fact = "both are given" if cluster else "neither is given"
        raise UsageError(fact, place="--cluster, --profile", expected="one of them")
    if engines is not None and engines > MAX_ENGINES:
        raise UsageError(f"asks for {engines} engines", place="--engines", expected=f"at most {MAX_ENGINES}")
    if cluster is not None:
        loaded = load_cluster(cluster)
        return loaded.with_engines(engines) if engines else loaded
    assert profile is not None
    return cluster_of(load_profile(profile), engines or 1)
