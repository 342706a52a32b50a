"""Where a result goes besides the terminal: an HTML file, a run folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentctl import __version__
from agentctl.cli.command import origin
from agentctl.files import atomic_file, check_output
from agentctl.report.escape import printable

if TYPE_CHECKING:
    import typer

    from agentctl.present import Section
    from agentctl.result import RunResult

REPORT_FILE = "report.html"
PATHS = ("/", "~", ".")  # a model's name may be where its file lies on the server's machine
# Say where a result goes, whom it was asked of or where it was computed, not what it is.
WHERE_ONLY = {
    "html", "output", "force", "measured", "url", "endpoint", "owned", "engine", "workers", "address",
}  # fmt: skip


def check_free(path: Path | None, force: bool, *, mark: str | None = None) -> None:
    """Before a long run: raise OutputError when its output may not be written (files.check_output)."""
    if path is not None:
        check_output(path, force=force, mark=mark)


def finish(ctx: typer.Context, title: str, result: RunResult, folder: Path | None, force: bool) -> int:
    """Write the run folder if one was asked for, print the result, and return its exit code."""
    document = with_command(ctx, result.document, title)
    result = replace(result, document=document)
    if folder is not None:
        page = report_page(document, result.sections)
        result.write(folder, force=force, extra={REPORT_FILE: page})
    ctx.obj.result(document, result.sections)
    if folder is not None:
        ctx.obj.note(f"written: {folder / REPORT_FILE}")
    return result.exit_code


def stopped(measured: Path, following: str) -> str:
    """What a person who pressed Ctrl-C can go on with."""
    if not measured.is_file():
        return "stopped: nothing was measured yet"
    return f"stopped: what was measured is in {measured}, {following}"


class Calibrated(Protocol):
    """What every source of `agentctl calibrate` finds."""

    @property
    def document(self) -> dict[str, Any]: ...
    @property
    def sections(self) -> Sequence[Section]: ...
    def toml(self) -> str: ...


def finish_profile(
    ctx: typer.Context,
    title: str,
    found: Calibrated,
    output: Path | None,
    html: Path | None,
    force: bool,
    following: str | None = None,
) -> None:
    """Write the profile and the report that were asked for, and print the result. Raises, before anything is
    written, the error that says why there is no profile."""
    document = with_command(ctx, found.document, title)
    text = found.toml() if output else None
    if output and text is not None:
        with atomic_file(output, force=force) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if html:
        write_report(html, document, found.sections, force)
    ctx.obj.result(document, found.sections)
    if output:
        ctx.obj.note(f"written: {output}" + (f"; next: {following}" if following else ""))


def write_report(path: Path, document: dict[str, Any], sections: Sequence[Section], force: bool) -> None:
    """Write the HTML report to `path`; raises OutputError when it exists and `force` is off."""
    with atomic_file(path, force=force) as temporary:
        temporary.write_bytes(report_page(document, sections))


def report_page(document: dict[str, Any], sections: Sequence[Section]) -> bytes:
    """The HTML report of a document that went through `with_command`."""
    from agentctl.report.html import html_page

    command = document["schema"].split("/")[1]
    title = str(document.get("provenance", {}).get("trace", ""))
    return html_page(title, f"agentctl {command}", sections, tuple(_provenance(document)))


def with_command(ctx: typer.Context, document: dict[str, Any], trace: str) -> dict[str, Any]:
    """The document with the command that made it, so that it can be rendered again from itself alone."""
    provenance = {"trace": trace, **document.get("provenance", {}), "command": command_line(ctx)}
    return {**document, "provenance": provenance}


def command_line(ctx: typer.Context) -> str:
    """What was asked, without where it was written: two runs of it give the same bytes."""
    words = [ctx.command_path]
    for param in ctx.command.params:
        value = ctx.params.get(param.name)
        if param.name in WHERE_ONLY or value in (None, False, []) or origin(ctx, param) == "default":
            continue
        flag = [] if param.param_type_name == "argument" else [param.opts[0]]
        for item in value if isinstance(value, list) else [value]:
            item = Path(item) if param.name == "served_model" and item.startswith(PATHS) else item
            words += flag if item is True else [*flag, shlex.quote(_name(item))]
    return " ".join(words)


def _provenance(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Command, versions, hashes and seed, as far as the document knows them."""
    known = dict(document.get("provenance", {}))
    yield "command", known.pop("command", "unknown")
    yield "agentctl", str(known.pop("agentctl_version", document.get("agentctl_version", __version__)))
    if isinstance(document.get("trace"), dict):
        known["trace_digest"] = document["trace"].get("digest")
    known.setdefault("seed", document.get("seed"))
    cluster = document.get("cluster")
    for pool in cluster.get("pools", []) if isinstance(cluster, dict) else []:
        if isinstance(pool, dict) and "calibration_digest" in pool:
            known[f"calibration of {pool.get('profile')}"] = pool["calibration_digest"]
    for what, value in known.items():
        if isinstance(value, str | int | float):
            yield what.replace("_", " "), str(value)


def _name(value: Any) -> str:
    """A path's last part, as text: where a folder lies on this machine is nobody's business."""
    return printable(value.name if isinstance(value, Path) else str(value))
