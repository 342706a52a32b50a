"""What a request sent, for formats that log text: pieces that readers hand over and ingest hashes at once.

Readers never decode text further than they must; nothing here outlives the batch that it came in.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Prompt(NamedTuple):
    """One prompt in pieces, in the order of the conversation.

    messages  raw JSON of each message, byte for byte as logged; a log of plain text gives one piece. Or,
              faster, the JSON array of them as it stands in the line that was decoded
    tools     raw JSON of the tool definitions, empty when there are none
    group     what keeps KV apart (cache salt, LoRA name, ...), None for the common group
    reply     raw JSON of the assistant message that answered, where the log has it
    system    raw JSON of a system prompt or instructions kept apart by the format: the first message
    """

    messages: list[bytes] | bytes | msgspec.Raw
    tools: bytes = b""
    group: str | None = None
    reply: bytes | None = None
    system: bytes = b""
