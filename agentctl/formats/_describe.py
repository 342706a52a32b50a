"""What the readers are, as a document and as sections: what each format can and cannot carry."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from agentctl.present import Section, Table, Unit

FORMATS_SCHEMA = "agentctl/formats/1"

# Columns by what they are for, each with the short word of the listing.
GROUPS = {
    "times": {
        "arrival_s": "at", "ttft_s": "ttft", "e2e_s": "e2e", "queue_s": "queue", "prefill_s": "prefill",
        "decode_s": "decode", "gap_s": "gap",
    },
    "tokens": {
        "prompt_tokens": "in", "output_tokens": "out", "reasoning_tokens": "think",
    },
    "cache": {
        "cached_tokens": "read", "cache_write_tokens": "write", "cached_external_tokens": "ext",
    },
    "blocks": {"hash_ids": "ids", "prompts": "text"},
    "sessions": {
        "session_id": "id", "parent_request_id": "link", "turn_index": "turn", "attempt": "attempt",
        "agent_path": "agent",
    },
    "placement": {"instance": "engine"},
}  # fmt: skip


def document(readers: Iterable[ModuleType]) -> dict[str, Any]:
    return {
        "schema": FORMATS_SCHEMA,
        "formats": [
            {"name": reader.NAME, "title": reader.TITLE, "carries": _grouped(reader), "lacks": reader.LACKS}
            for reader in readers
        ],
    }


def overview(readers: Iterable[ModuleType]) -> tuple[Section, ...]:
    known = list(readers)
    heads: tuple[tuple[str, Unit], ...] = (("format", ""), *((group, "") for group in GROUPS))
    cells = tuple((reader.NAME, *(_words(reader, group) or None for group in GROUPS)) for reader in known)
    lacks = tuple((reader.NAME, reader.LACKS) for reader in known)
    titles = tuple((reader.NAME, reader.TITLE) for reader in known)
    return (
        Section(
            "formats",
            "",
            "",
            tables=(
                Table(
                    heads, cells, "What a log of each format can carry (ids or text give the block chains)"
                ),
                Table((("format", ""), ("what it cannot say", "")), lacks),
                Table((("format", ""), ("what it is", "")), titles),
            ),
        ),
    )


def _words(reader: ModuleType, group: str) -> str:
    return " ".join(word for column, word in GROUPS[group].items() if column in reader.CARRIES)


def _grouped(reader: ModuleType) -> dict[str, list[str]]:
    """All columns that the format can give; those of no group under `other`."""
    grouped = {group: [name for name in names if name in reader.CARRIES] for group, names in GROUPS.items()}
    placed = {name for names in grouped.values() for name in names}
    return grouped | {"other": [name for name in reader.CARRIES if name not in placed]}
