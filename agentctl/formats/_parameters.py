"""A call's parameters, which are whatever the app sent: what is no limit is unknown, not a fault."""

from __future__ import annotations

import msgspec

from agentctl.formats._cells import whole


class Parameters(msgspec.Struct):
    """Parameters by the names of several APIs."""

    max_tokens: int | float | str | None = None
    maxTokens: int | float | str | None = None
    max_completion_tokens: int | float | str | None = None
    max_output_tokens: int | float | str | None = None
    stream: bool | None = None

    @property
    def limit(self) -> int | None:
        """Tokens of output asked for at most."""
        names = (self.max_tokens, self.maxTokens, self.max_completion_tokens, self.max_output_tokens)
        try:
            limit = whole(next((value for value in names if value is not None), None))
        except ValueError:
            return None
        return limit if limit and limit > 0 else None


def parameters(text: bytes | None) -> Parameters:
    try:
        return _decoder.decode(text or b"null") or Parameters()
    except (msgspec.DecodeError, RecursionError):
        return Parameters()


_decoder = msgspec.json.Decoder(Parameters | None)
