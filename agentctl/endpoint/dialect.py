"""How a server wants to be asked, found by asking: token ids or words, completions or chat, which extras.

The first request is the one that a vLLM server answers as it stands; what is refused (HTTP 400, 404, 422) is
left out, one thing after the other. These trials are warm-up at the same time, and few.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from agentctl.endpoint.client import Answer, Client, Dialect, now
from agentctl.endpoint.failures import failure
from agentctl.endpoint.prompts import Prompts
from agentctl.errors import InputError, UsageError

MOST_TRIALS = 10  # requests, at the very most
PROMPTS = ("auto", "tokens", "text")
TRIAL = (48, 12)  # tokens of prompt and output
LONGER = 384  # of the second trial of words: with the first it tells slope and constant
REFUSED = (400, 413, 415, 422)
NO_SUCH_PATH = (404, 405, 501)
EXTRAS = (("ignore_eos", "cache_salt"), ("ignore_eos",), ())
ASCII = "a"


@dataclass
class Trials:
    """What was found, and how many requests it took."""

    client: Client
    model: str
    salt: str
    requests: int = 0

    async def send(self, dialect: Dialect, tokens: int = TRIAL[0]) -> Answer:
        self.requests += 1
        self.client.dialect = dialect
        answer = Answer(now())
        prompt = Prompts(f"{self.salt}/trial", dialect).of([(f"trial-{self.requests}", tokens)])
        body = self.client.body(self.model, prompt, TRIAL[1], self.salt)
        await self.client.complete(body, TRIAL[1], answer)
        return answer


async def find_dialect(
    client: Client,
    model: str,
    wanted: str,
    salt: str,
    is_llama_cpp: bool = False,
    note: Callable[[str], None] = lambda said: None,
) -> tuple[Dialect, int]:
    """The first dialect that works, left in `client` too, and how many requests were sent to find it.

    wanted  auto, tokens or text. Raises InputError for a server with which none does.
    """
    if wanted not in PROMPTS:
        raise UsageError(f"is {wanted!r}", place="--prompts", expected="auto, tokens or text")
    trials = Trials(client, model, salt)
    found, why = None, None
    missing: set[str] = set()  # APIs
    for dialect in _candidates(wanted):
        if dialect.api in missing:
            continue
        answer = await trials.send(dialect)
        if answer.status != "ok":
            if answer.status == "http" and answer.http in (*REFUSED, *NO_SUCH_PATH):
                missing |= {dialect.api} if answer.http in NO_SUCH_PATH else set()
                why = why if why is not None and why.http in REFUSED else answer
                continue
            raise failure(answer)
        if dialect.prompts == "tokens" and not _counts_tokens(answer):
            if wanted == "tokens":
                raise _miscounted(answer)
            why = answer
            continue
        found = dialect
        break
    if found is None:
        assert why is not None
        raise failure(why) if why.status == "http" else _miscounted(why)
    if answer.prompt_tokens is None or answer.completion_tokens is None:
        raise InputError(
            "the server reports no usage, and tokens are not known without it", place="endpoint",
            expected="usage in the stream's last chunk (stream_options.include_usage)",
        )  # fmt: skip
    if found.prompts == "text":
        note("the server takes words, not token ids: lengths are about right, and as its usage says")
        found = await _measured_words(trials, found, answer)
    if is_llama_cpp or len(answer.chunks_s) != answer.completion_tokens:
        found = await _without_half_characters(trials, found)
    client.dialect = found
    return found, trials.requests


def _candidates(wanted: str) -> list[Dialect]:
    kinds = [("completions", "tokens")] if wanted in ("auto", "tokens") else []
    kinds += [("completions", "text"), ("chat", "text")] if wanted in ("auto", "text") else []
    return [Dialect(api, prompts, extras) for api, prompts in kinds for extras in EXTRAS]


def _counts_tokens(answer: Answer) -> bool:
    told = answer.prompt_tokens
    return told is None or TRIAL[0] <= told <= TRIAL[0] + 2  # a begin-of-text token may be added


def _miscounted(answer: Answer) -> InputError:
    return InputError(
        f"{TRIAL[0]} token ids were sent and usage says {answer.prompt_tokens} prompt tokens",
        place="endpoint",
        hint="it does not take token ids, or its usage is wrong: --prompts text sends words",
    )


async def _measured_words(trials: Trials, dialect: Dialect, first: Answer) -> Dialect:
    """Tokens of a word and of what the server puts around, from two prompts."""
    second = await trials.send(dialect, LONGER)
    if second.status != "ok":
        raise failure(second)
    told = first.prompt_tokens, second.prompt_tokens
    words = [round(tokens / dialect.tokens_per_word) for tokens in (TRIAL[0], LONGER)]
    if told[0] is None or told[1] is None or not 0 < told[1] - told[0] < 100 * (words[1] - words[0]):
        raise InputError(
            f"{words[0]} words are {told[0]} tokens by the server's usage, {words[1]} are {told[1]}",
            place="endpoint", hint="its usage cannot be right, and tokens are not known without it",
        )  # fmt: skip
    slope = (told[1] - told[0]) / (words[1] - words[0])
    return replace(dialect, tokens_per_word=slope, tokens_around=max(0.0, told[0] - slope * words[0]))


async def _without_half_characters(trials: Trials, dialect: Dialect) -> Dialect:
    """llama.cpp sends no chunk for half a character: a whole one, forced, comes as it is made."""
    token = await _ascii_token(trials.client, trials.model)
    if token is None:
        return dialect
    forced = replace(dialect, bias_token=token)
    answer = await trials.send(forced)
    whole = answer.status == "ok" and len(answer.chunks_s) == answer.completion_tokens
    return forced if whole else dialect


async def _ascii_token(client: Client, model: str) -> int | None:
    """The token of a letter, where the server tells its tokens (llama.cpp, vLLM)."""
    asked: dict[str, Any] = {"model": model, "content": ASCII, "prompt": ASCII, "add_special_tokens": False}
    said = await client.ask(f"{client.root}/tokenize", asked)
    try:
        tokens = json.loads(said[1])["tokens"] if said and said[0] == 200 else []
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    alone = isinstance(tokens, list) and len(tokens) == 1 and type(tokens[0]) is int
    return tokens[0] if alone and 0 <= tokens[0] < 10**7 else None
