"""Logs with canaries: every string of a sample carries a mark that tells where it stood.

poisoned = poison(text_of_a_log)
poisoned.good      the same records, their strings lengthened by marks; secrets in fields that nobody knows
poisoned.bad       the same with broken copies of the records in between: cut, junk, text in place of numbers
marks_in(data)     numbers of the marks in some bytes, ENCODED for one in hexadecimal or base64
poisoned.fields(n) the fields where mark n was put

Only what a reader must see to know a record's kind or time is left alone (CONTROL).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

STEM = "Kanarienvogel"
ENCODED = -1
MARK = re.compile(STEM + r"(\d{4})Q")
SECRETS = {
    "authorization": "Bearer sk-{}", "Authorization": "Bearer sk-{}", "api_key": "sk-{}", "cookie": "sid={}",
    "user_email": "{}@example.com", "client_ip": "2001:db8::{}", "password": "{}", "x_raw_prompt": "{}",
    "stack_trace": 'File "a.py", line 3, in f({})',
}  # fmt: skip

# Fields by which readers tell kinds, units, outcomes and times: a mark in them would only make a bad record.
CONTROL = {
    *(
        "type",
        "event",
        "event_type",
        "kind",
        "object",
        "role",
        "status",
        "level",
        "schema",
        "unit",
        "version",
    ),
    *("op", "operation", "call_type", "cache_hit", "benchmark_phase", "gen_ai.operation.name", "source"),
    *("gen_ai.system", "gen_ai.provider.name", "openinference.span.kind", "hash_id_scope", "subtype"),
    *("finish_reason", "stop", "stop_reason", "Log Type", "name", "traceId", "spanId", "parentSpanId"),
    *("trace_id", "span_id", "tool_class", "custom_llm_provider", "provider", "agent_id", "is_sidechain"),
    *("method", "x-envoy-origin-path", "response_flags", "msg", "logger", "body"),
}
LIKE_TIME_OR_NUMBER = re.compile(
    r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*|\d{4}-\d\d-\d\d[T ][\d:.,+Zz-]+|(?:true|false|null|none)|",
    re.IGNORECASE,
)
HEX_LIST_ITEM = re.compile(r"(?:0x)?[0-9a-f]{8,}")
QUOTED = re.compile(
    r"""(?P<key>[\w.-]*)(?P<gap>["']?\s*[:=]\s*)(?P<quote>["'])(?P<text>(?:(?!(?P=quote))[^\\\n]|\\.)*)(?P=quote)"""
)


@dataclass
class Poisoned:
    """A log in which every string tells where it came from."""

    good: bytes = b""
    bad: bytes = b""
    is_document: bool = False
    texts: list[str] = field(default_factory=list)  # strings of several words, as they are in the log
    _numbers: dict[str, int] = field(default_factory=dict)
    _fields: list[set[str]] = field(default_factory=list)  # by number

    def mark(self, path: str, of: str | None = None) -> str:
        """The mark of a field; of a name the same wherever it stands, so that links between records hold."""
        number = self._numbers.setdefault(path if of is None else f"={of}", len(self._numbers))
        if number == len(self._fields):
            self._fields.append(set())
        self._fields[number].add(path)
        return f"{STEM}{number:04}Q"

    def fields(self, number: int) -> set[str]:
        """Where a mark was put."""
        return self._fields[number]

    def string(self, path: str, text: str) -> str:
        """`text` with marks behind it: one behind a name, many behind a text."""
        is_text = " " in text
        long = f"{text} {' '.join([self.mark(path)] * 6)}" if is_text else f"{text}-{self.mark(path, text)}"
        if is_text:
            self.texts.append(long)
        return long


def poison(text: bytes, n_lines: int = 40, kind: type[Poisoned] = Poisoned) -> Poisoned:
    """The first records of a log with marks in them."""
    poisoned = kind()
    decoded = text.decode("utf-8-sig")
    lines = [line for line in decoded.split("\n") if line.strip()]
    if isinstance(_json(lines[0]), dict):
        _json_lines(poisoned, lines[:n_lines])
    elif isinstance(document := _json(decoded), dict | list):
        _document(poisoned, document)
    elif is_header(lines[0]):
        _table(poisoned, decoded, n_lines)
    else:
        _text_lines(poisoned, lines[: 8 * n_lines])
    return poisoned


def is_header(line: str) -> bool:
    """Is this the first line of a table?"""
    return re.fullmatch(r"[\w \"]+(?:,[\w \"]*)+\r?", line) is not None


def marks_in(data: bytes) -> set[int]:
    """Numbers of the marks in `data`, and ENCODED if there is one in another writing."""
    found = {int(n) for n in MARK.findall(data.decode("utf-8", "replace"))}
    return found | ({ENCODED} if any(encoded in data for encoded in _ENCODED) else set())


def digests(texts: list[str]) -> set[bytes]:
    """First and last 8 bytes of the usual digests of each text and of its JSON form, without a key."""
    found = set()
    for text in dict.fromkeys(texts):
        for data in (text.encode(), json.dumps(text).encode(), json.dumps(text)[1:-1].encode()):
            for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s", "sha3_256"):
                digest = hashlib.new(name, data).digest()
                found |= {digest[:8], digest[-8:]}
            found |= {hashlib.blake2b(data, digest_size=size).digest()[:8] for size in (8, 16, 32)}
    return found


_NO_JSON = object()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _NO_JSON


def _document(poisoned: Poisoned, value: Any) -> None:
    poisoned.is_document = True
    poisoned.good = json.dumps(_walk(poisoned, value, "$")).encode()
    records = value if isinstance(value, list) else [value]
    broken = [copy for record in records[:3] for copy in _with_text_for_numbers(poisoned, record)]
    poisoned.bad = json.dumps(_walk(poisoned, [*records[:3], *broken], "$")).encode()


def _json_lines(poisoned: Poisoned, lines: list[str]) -> None:
    values = [_json(line) for line in lines]
    good = [json.dumps(_walk(poisoned, value, "$")) for value in values if value is not _NO_JSON]
    poisoned.good = _joined(good)
    broken = [json.dumps(copy) for value in values[:4] for copy in _with_text_for_numbers(poisoned, value)]
    poisoned.bad = _joined(_interleaved(good, [*broken, *_broken_lines(poisoned, good)]))


def _table(poisoned: Poisoned, text: str, n_lines: int) -> None:
    csv.field_size_limit(1 << 24)
    header, *rows = [row for _, row in zip(range(n_lines), csv.reader(io.StringIO(text)), strict=False)]

    def cell(name: str, value: str) -> str:
        return _leaf(poisoned, value, f"$/{name}", name)

    good = [[cell(name, value) for name, value in zip(header, row, strict=True)] for row in rows]
    secrets = [template.format(poisoned.mark(f"$/{name}")) for name, template in SECRETS.items()]
    numbers = [
        [*row[:at], row[at] + poisoned.mark(f"number/{header[at]}"), *row[at + 1 :]]
        for row in good[:2]
        for at in range(len(header))
    ]
    poisoned.good = _csv([*header, *SECRETS], [[*row, *secrets] for row in good])
    short = [row[:-1] for row in good[:2]]
    poisoned.bad = _csv(header, [*good, *numbers, *short]) + b'1,"' + poisoned.mark("open cell").encode()


def _text_lines(poisoned: Poisoned, lines: list[str]) -> None:
    good = [_text_line(poisoned, line) for line in lines]
    poisoned.good = _joined(good)
    numbers = [
        line[: number.start()]
        + poisoned.mark(f"number behind/{_word_before(line, number)}")
        + line[number.end() :]
        for line in good[:40]
        for number in list(re.finditer(r"\d+", line))[:30]
    ]
    secrets = [f"{name}: {template.format(poisoned.mark(name))}" for name, template in SECRETS.items()]
    poisoned.bad = _joined(_interleaved(good, [*numbers, *secrets, *_broken_lines(poisoned, good[:60])]))


def _text_line(poisoned: Poisoned, line: str) -> str:
    """A JSON object at the end of a line is walked; else every quoted string behind a name gets its marks."""
    brace = line.find("{")
    if brace >= 0 and (value := _json(line[brace:])) is not _NO_JSON:
        return line[:brace] + json.dumps(_walk(poisoned, value, "$"))

    def quoted(match: re.Match[str]) -> str:
        text = _leaf(poisoned, match["text"], f"text/{match['key']}", match["key"])
        return f"{match['key']}{match['gap']}{match['quote']}{text}{match['quote']}"

    return QUOTED.sub(quoted, line)


def _word_before(line: str, number: re.Match[str]) -> str:
    """The word before the one that a number is part of."""
    start = line.rfind(" ", 0, number.start()) + 1
    return "".join(re.findall(r"[A-Za-z][\w.-]*", line[:start])[-1:])


def _walk(poisoned: Poisoned, value: Any, path: str, key: str = "") -> Any:
    if isinstance(value, dict):
        if value.keys() == {"key", "value"}:  # an attribute of a span
            inner = _walk(poisoned, value["value"], f"{path}/{value['key']}", value["key"])
            return {"key": value["key"], "value": inner}
        is_count = all(isinstance(item, int | float) for item in value.values())
        is_wrapped = len(value) == 1 and next(iter(value)).endswith(("Value", "values"))
        walked = {
            name: _walk(poisoned, item, path if is_wrapped else f"{path}/{name}", key if is_wrapped else name)
            for name, item in value.items()
        }
        extra = {
            name: template.format(poisoned.mark(f"{path}/{name}"))
            for name, template in SECRETS.items()
            if name not in value and not is_count
        }
        return walked if is_wrapped else {**walked, **extra}
    if isinstance(value, list):
        return [_walk(poisoned, item, f"{path}[]", key) for item in value]
    return _leaf(poisoned, value, path, key) if isinstance(value, str) else value


def _leaf(poisoned: Poisoned, text: str, path: str, key: str) -> str:
    inner = _json(text) if text[:1] in "{[" else _NO_JSON
    if isinstance(inner, dict | list):
        return json.dumps(_walk(poisoned, inner, path, key))
    if (
        key in CONTROL
        or LIKE_TIME_OR_NUMBER.fullmatch(text)
        or (path.endswith("[]") and HEX_LIST_ITEM.fullmatch(text))
    ):
        return text
    return poisoned.string(path, text)


def _with_text_for_numbers(poisoned: Poisoned, value: Any) -> Iterator[Any]:
    """Copies of a record, in each of which one number (or time) is a text with a mark."""
    for path, put in list(_numbers(value, "$"))[:60]:
        yield put(f"12 {poisoned.mark(f'number {path}')}")


def _numbers(value: Any, path: str) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    if isinstance(value, dict):
        for name, item in value.items():
            for inner, put in _numbers(item, f"{path}/{name}"):
                yield inner, lambda new, put=put, name=name: {**value, name: put(new)}
    elif isinstance(value, list):
        for at, item in enumerate(value[:3]):
            for inner, put in _numbers(item, f"{path}[{at}]"):
                yield inner, lambda new, put=put, at=at: [*value[:at], put(new), *value[at + 1 :]]
    elif isinstance(value, int | float) or (isinstance(value, str) and LIKE_TIME_OR_NUMBER.fullmatch(value)):
        yield path, lambda new: new


def _broken_lines(poisoned: Poisoned, good: list[str]) -> list[str]:
    junk = poisoned.mark("junk")
    cut = [line[: len(line) * share // 10] + junk for line in good[:3] for share in (2, 5, 9)]
    return [*cut, junk, f'"{junk}"', f'["{junk}"]', f'{{"{junk}": 1}}', f"{junk}\x00\x01", f"\ud7ff{junk}"]


def _interleaved(good: list[str], bad: list[str]) -> list[str]:
    """The bad ones spread among the good, the first and the last line good."""
    step = max(len(bad) // max(len(good) - 1, 1), 1)
    mixed: list[str] = []
    for at, line in enumerate(good[:-1]):
        mixed += [line, *bad[at * step : (at + 1) * step]]
    return [*mixed, *bad[max(len(good) - 1, 0) * step :], *good[-1:]]


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def _csv(header: list[str], rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([header, *rows])
    return out.getvalue().encode()


def _encodings() -> list[bytes]:
    """How the stem of a mark begins in hexadecimal and, at each of three places, in base64."""
    stem = STEM.encode()
    return [stem.hex().encode(), *(base64.b64encode(stem[skip:-1])[:-4] for skip in range(3))]


_ENCODED = _encodings()
