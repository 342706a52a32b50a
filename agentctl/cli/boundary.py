"""The error boundary: what a person reads when a command cannot go on, and its exit code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import IO, Any

from typer import TyperException

from agentctl.cli.command import origin
from agentctl.errors import AgentctlError, AgentctlWarning
from agentctl.report.escape import printable

ISSUES = "please report this: it is a bug in agentctl, not in your data"
INTERRUPTED, TERMINATED = 130, 143
FRAMES = 6
OURS = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
SUGGESTION = re.compile(r"[. ]+\(?(?:Did you mean|Possible options:) (.+?)[?)]+$")


class Terminated(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt, so that temporary files are removed on the way out."""


def explain(error: BaseException, out: IO[str]) -> int:
    """Write what went wrong to `out` and return the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, Terminated):
        return TERMINATED
    if isinstance(error, AgentctlError):
        return _say(out, error.message, error.hint, error.exit_code)
    if isinstance(error, TyperException):
        return _say(out, *_usage(error), getattr(error, "exit_code", 1))
    if isinstance(error, OSError) and error.filename is not None:
        return _say(out, f"{os.fsdecode(error.filename)}: {error.strerror}", None, 1)
    if isinstance(error, MemoryError):
        return _say(out, "out of memory", "give the process more memory, or split the input", 1)
    return _bug(error, out)


def show_warning(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
    """Ours in one line, for who runs the command; others as Python shows them."""
    if issubclass(category, AgentctlWarning):
        sys.stderr.write(f"warning: {printable(str(message))}\n")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _say(out: IO[str], message: str, hint: str | None, code: int) -> int:
    out.write(f"error: {_lines(message)}\n")
    if hint:
        out.write(f"\nhint: {_lines(hint)}\n")
    return code


def _lines(text: str) -> str:
    """A message may list places, one a line; nothing else in it moves the cursor."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _usage(error: Any) -> tuple[str, str | None]:
    """typer's complaint in our form: place, fact, and the way out."""
    context: Any = getattr(error, "ctx", None)
    param = getattr(error, "param", None)
    message = _refused_value(error) or error.message or error.format_message()
    found = SUGGESTION.search(message)
    message = SUGGESTION.sub("", message).rstrip(".")
    message = message[:1].lower() + message[1:]
    if param is not None and error.message:
        message = f"{_place(context, param)}: {message}"
    close = getattr(error, "possibilities", None) or ([found[1].strip("'")] if found else [])
    if close:
        return message, f"did you mean {close[0]}?"
    return message, f"see {context.command_path} --help" if context else None


def _place(context: Any, param: Any) -> str:
    """What holds the value of an option: its flag, its variable, or a key of the configuration file."""
    source = origin(context, param)
    if source in ("flag", "default"):
        return str(param.opts[0])
    return source if source == param.envvar else f"{source}: {param.name}"


def _refused_value(error: BaseException) -> str | None:
    """The value and what would be right, where typer knows both (it asks pydantic); else None."""
    errors = getattr(error.__cause__ or error.__context__, "errors", None)
    if errors is None:
        return None
    found = errors()[0]
    value, limits = found.get("input"), found.get("ctx", {})
    expected = {
        "greater_than_equal": f"at least {limits.get('ge')}",
        "less_than_equal": f"at most {limits.get('le')}",
        "int_parsing": "a whole number",
        "int_parsing_size": "a whole number of fewer digits",
        "int_from_float": "a whole number",
        "float_parsing": "a number",
        "bool_parsing": "true or false",
    }.get(found["type"])
    if expected is None:
        return str(found["msg"]).removeprefix("Value error, ")
    return f"is {value!r}; expected {expected}"


def _bug(error: BaseException, out: IO[str]) -> int:
    """The trail and the type, never a value: messages of other libraries quote the data they choke on."""
    import traceback

    if os.environ.get("AGENTCTL_TRACEBACK"):
        traceback.print_exception(error, file=out)
        return 1
    out.write(f"error: unexpected {type(error).__name__} inside agentctl\n\n")
    trail = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in trail[:-1] if OURS in frame.filename]
    for frame in [*ours[-FRAMES:], *trail[-1:]]:
        out.write(f"  {frame.filename}:{frame.lineno} in {frame.name}\n")
    out.write(f"\nhint: {ISSUES}; AGENTCTL_TRACEBACK=1 shows the whole message (it may quote the log)\n")
    return 1
