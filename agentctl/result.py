"""What a run ends with: one document for machines, sections for readers, files for later, an exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentctl.errors import InputError
from agentctl.files import atomic_folder, canonical_json
from agentctl.present import Section

if TYPE_CHECKING:
    import pyarrow as pa

RESULT_FILE = "result.json"
OUTCOME_FILE = "outcome.parquet"

Progress = Callable[[float, str], None]  # share done (0..1) and what is being done


@dataclass(frozen=True)
class RunResult:
    """The result of `simulate` or `recommend`.

    document   what `--json` prints: schema `agentctl/<command>/1`, unknown is null, same input same bytes
    sections   the same result for the terminal and the HTML report, verdict first
    exit_code  0 done; 3 done, but the objective was not met or the claim is declined
    outcome    one row per simulated request (design: outcome.parquet), when there is one run to show
    """

    document: dict[str, Any]
    sections: tuple[Section, ...]
    exit_code: int = 0
    outcome: pa.Table | None = field(default=None, compare=False)

    def write(self, folder: Path, force: bool = False, extra: Mapping[str, bytes] | None = None) -> None:
        """Write the run folder whole or not at all: result.json, outcome.parquet and `extra` files by name.

        result.json is the document with its sections beside it, so that `read_result` can render it again.
        Raises OutputError when the folder exists and `force` is off.
        """
        with atomic_folder(folder, force=force) as temporary:
            whole = {**self.document, "sections": msgspec.to_builtins(self.sections, str_keys=True)}
            (temporary / RESULT_FILE).write_bytes(canonical_json(whole))
            if self.outcome is not None:
                import pyarrow.parquet as pq

                pq.write_table(self.outcome, temporary / OUTCOME_FILE, compression="zstd")
            for name, content in (extra or {}).items():
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_bytes(content)


def read_result(folder: Path) -> RunResult:
    """The document and sections of a run folder (without the outcome table); raises InputError."""
    path = folder / RESULT_FILE
    try:
        document = msgspec.json.decode(path.read_bytes())
        sections = msgspec.convert(document.pop("sections"), tuple[Section, ...], strict=False)
    except (OSError, msgspec.MsgspecError, KeyError, AttributeError) as error:
        raise InputError(
            "is not the result of a run", place=str(path), expected="a folder made by -o RUN/"
        ) from error
    return RunResult(document, sections, exit_code=int(document.get("exit_code", 0)))
