"""Prompts as vLLM prints them: `prompt: REPR, params: SamplingParams(...), prompt_token_ids: [...], ...`."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from agentctl.formats._repr import literal_end, text_of, without_strings
from agentctl.formats._text import COLOUR

_LABEL = b"prompt: "


class Sent(NamedTuple):
    """What stands behind the id of a request."""

    text: str | None  # the prompt
    size: int  # of its literal, bytes
    rest: bytes  # the other fields, strings blanked
    raw: bytes  # the same with their strings


def parse_sent(fields: bytes) -> Sent | None:
    """None for a line that was cut within the prompt."""
    if not fields.startswith(_LABEL):
        return Sent(None, 0, without_strings(fields), fields)
    fields = fields.removeprefix(_LABEL)
    end = literal_end(fields)
    if end < 0:
        return Sent(None, 0, without_strings(fields), fields) if fields.startswith(b"None, ") else None
    try:
        text = text_of(fields[:end])
    except ValueError:
        return None
    raw = fields[end:]
    return Sent(text, end, without_strings(raw), raw)


class Cut:
    """The length at which --max-log-len cuts prompts (in characters) and lists of token ids.

    Three different prompts of the greatest length are a cut, as seen in the sample at the beginning.
    """

    def __init__(self, sample: bytes) -> None:
        self._texts: dict[int, set[int]] = defaultdict(set)  # by length, of the greatest length so far
        self._length: int | None = None
        for line in COLOUR.sub(b"", sample).split(b"\n"):
            at = line.find(_LABEL)
            literal = line[at + len(_LABEL) :] if at >= 0 else b""
            try:
                text = text_of(literal[:end]) if (end := literal_end(literal)) > 0 else ""
            except ValueError:
                continue
            self._see(len(text), text)
        length = max(self._texts, default=0)
        if len(self._texts[length]) >= 3:
            self._length = length
        self._n_cut = 0

    def is_cut(self, length: int, text: str | None = None) -> bool:
        if text is not None:
            self._see(length, text)
        is_cut = length == self._length
        self._n_cut += is_cut
        return is_cut

    def _see(self, length: int, text: str) -> None:
        if length and length >= max(self._texts, default=0):
            if length not in self._texts:
                self._texts.clear()
            self._texts[length].add(hash(text))

    def warn(self, name: str, warnings: list[str]) -> None:
        length = max(self._texts, default=0)
        if self._n_cut:
            warnings.append(
                f"{name}: {self._n_cut:,} prompts are cut at {self._length} (--max-log-len): their blocks "
                "and lengths are unknown"
            )
        elif len(self._texts[length]) >= 3:
            warnings.append(
                f"{name}: several prompts end at {length} characters: did --max-log-len cut them?"
            )
