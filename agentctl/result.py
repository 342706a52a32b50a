"""What a run ends with: one document for machines, sections for readers, files for later, an exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from agentctl.errors import InputError
from agentctl.files import atomic_folder, canonical_json
from agentctl.present import Section

if TYPE_CHECKING:
    import pyarrow as pa

RESULT_FILE = "result.json"
OUTCOME_FILE = "outcome.parquet"
RUN = "a folder made by -o RUN/ of simulate or recommend"

Progress = Callable[[float, str], None]  # share done (0..1) and what is being done


@dataclass(frozen=True)
class RunResult:
    """The result of `simulate` or `recommend`.

    document   what `--json` prints: schema `agentctl/<command>/1`, unknown is null, same input same bytes
    sections   the same result for the terminal and the HTML report, verdict first
    exit_code  0 done; 3 done, but the objective was not met or the claim is declined
    outcome    one row per simulated request (design: outcome.parquet), when there is one run to show
    files      what else goes into the run folder, by relative path
    """

    document: dict[str, Any]
    sections: tuple[Section, ...]
    exit_code: int = 0
    outcome: pa.Table | None = field(default=None, compare=False)
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False)

    def write(self, folder: Path, force: bool = False, extra: Mapping[str, bytes] | None = None) -> None:
        """Write the run folder whole or not at all: result.json, outcome.parquet and `extra` files by name.

        result.json is the document with its sections beside it, so that `read_result` can render it again.
        Raises OutputError when the folder exists and `force` is off.
        """
        with atomic_folder(folder, mark=RESULT_FILE, force=force) as temporary:
            whole = {**self.document, "sections": msgspec.to_builtins(self.sections, str_keys=True)}
            (temporary / RESULT_FILE).write_bytes(canonical_json(whole))
            if self.outcome is not None:
                import pyarrow.parquet as pq

                pq.write_table(self.outcome, temporary / OUTCOME_FILE, compression="zstd")
            for name, content in {**self.files, **(extra or {})}.items():
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_bytes(content)


def read_result(folder: Path) -> RunResult:
    """The document and sections of a run folder (without the outcome table); raises InputError."""
    path = folder / RESULT_FILE
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        head = msgspec.convert(document, _Written, strict=False)
    except OSError as error:
        fact = f"cannot be read ({error.strerror})" if folder.is_dir() else "is not a folder"
        place = str(path) if folder.is_dir() else str(folder)
        raise InputError(fact if folder.exists() else "does not exist", place=place, expected=RUN) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("is not the result of a run", place=str(path), expected=RUN) from error
    del document["sections"]
    return RunResult(document, head.sections, exit_code=head.exit_code)


class _Written(msgspec.Struct):
    """What a result.json has at least."""

    schema: Annotated[str, msgspec.Meta(pattern=r"^agentctl/[a-z-]+/1$")]
    sections: tuple[Section, ...]
    provenance: dict[str, Any] = {}
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
