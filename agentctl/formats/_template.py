"""A rendered prompt back to messages, by the marks that chat templates put before each.

    <|im_start|>ROLE (ChatML: Qwen, ...), <|start_header_id|>ROLE<|end_header_id|> (Llama 3), <|ROLE|> (GLM,
    Phi, ...), <start_of_turn>ROLE (Gemma), <|start|>ROLE (gpt-oss), <｜User｜>, <｜Assistant｜> (DeepSeek)

Two prompts of one conversation then share their first messages, and the assistant's are known. Text that uses
such marks itself is cut there too, in all prompts alike, so that no prefix is lost.
"""

from __future__ import annotations

import re

import msgspec

_MARK = re.compile(
    r"<\|im_start\|>(\w+)|<\|start_header_id\|>(\w+)<\|end_header_id\|>|<start_of_turn>(\w+)|<\|start\|>(\w+)"
    r"|<\|(system|user|assistant|tool|observation|developer|ipython)\|>|<｜(User|Assistant)｜>"
)
_ROLES = {"model": "assistant", "observation": "tool", "ipython": "tool"}
_EMPTY = re.compile(r"(?:\s|</?think>|<\|channel\|>\w*|<\|message\|>)*")


def messages_of(prompt: str) -> list[bytes]:
    """JSON messages with role and content; one with the whole text where no mark is found.

    The beginning of an answer that closes a prompt is left out: in the next turn an answer stands there.
    Raises UnicodeEncodeError for lone surrogates.
    """
    marks = list(_MARK.finditer(prompt))
    if not marks:
        return [_message("user", prompt)]
    messages = []
    if before := prompt[: marks[0].start()]:
        messages.append(_message("system", before))
    ends = [*(mark.start() for mark in marks[1:]), len(prompt)]
    for mark, end in zip(marks, ends, strict=True):
        role = mark[mark.lastindex or 0].lower()
        content = prompt[mark.end() : end]
        is_opened = role in ("assistant", "model") and end == len(prompt) and _EMPTY.fullmatch(content)
        if not is_opened:
            messages.append(_message(_ROLES.get(role, role), content))
    return messages


def _message(role: str, content: str) -> bytes:
    return msgspec.json.encode({"role": role, "content": content})
