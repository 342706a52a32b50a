"""A policy's function made ready for the loop, and what to say of a user's function that fails.

The loop calls every policy through one signature: its parameters are an array of floats, its answer an
int64. The function that translates is compiled together with the policy, and cached where the policy itself
is: under the policy's own file, so that a change of that file is noticed.
"""

from __future__ import annotations

import re
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import jit, njit, types
from numba.core.errors import NumbaError

from agentctl.errors import AgentctlError, ConfigError
from agentctl.sim.jit import INTERNAL
from agentctl.sim.lean import KernelCompiler
from agentctl.toml import suggestion

OURS = str(Path(__file__).parents[1])
ANSWER = "a whole number, that of an engine"
LONGEST = 200  # characters of somebody else's message


@cache
def bind(name: str, choose: Any, params: Any, signature: Any) -> Any:
    """`choose` of policy `name` as a function of `signature` = int64(view, requests, int64, parameters).

    Raises ConfigError for a user's function that cannot be compiled or answers with anything but integers.
    """
    code = choose.py_func.__code__
    values = ", ".join(f"my[{k}]" for k in range(len(params._fields)))
    bound = f"{choose.py_func.__name__}_bound"
    text = f"def {bound}(view, requests, r, my):\n"
    text += f"    return int64(choose(view, requests, r, params({values})))\n"
    text = "\n" * (code.co_firstlineno - 1) + text  # the cache tells functions of a file apart by their lines
    options = {**choose.targetoptions, **INTERNAL}
    if not is_ours(choose):
        options["boundscheck"] = options.get("boundscheck") is not False  # an error and no crash
    inner: Any = jit(**options, pipeline_class=KernelCompiler)(choose.py_func)
    space = {"int64": np.int64, "choose": inner, "params": params, "__name__": choose.py_func.__module__}
    exec(compile(text, code.co_filename, "exec"), space)
    options = {"nogil": True, "no_cpython_wrapper": True, "cache": choose.stats.cache_path is not None}
    compiled: Any = njit(**options)(space[bound])
    view, requests, r, _ = signature.args
    try:
        if not is_ours(choose):
            _check_answer(name, inner, (view, requests, r, _type_of(params)))
        compiled.compile(signature.args)
    except ConfigError:
        raise
    except Exception as error:  # numba also fails with errors that are not its own
        records = (view.record.instance_class, requests.record.instance_class, params)
        raise (error if is_ours(choose) else _of_compiler(name, choose, error, records)) from error
    return compiled


def _type_of(params: Any) -> Any:
    """The compiler's type of a NamedTuple of floats."""
    n = len(params._fields)
    return types.NamedUniTuple(types.float64, n, params) if n else types.NamedTuple((), params)


def _check_answer(name: str, choose: Any, arguments: tuple[Any, ...]) -> None:
    choose.compile(arguments)
    answer = choose.overloads[arguments].signature.return_type
    if not isinstance(answer, types.Integer):
        raise wrong_kind(name, _word(str(answer)) or str(answer))


def _word(answer: str) -> str | None:
    """The name of a compiler's type in Python's words; None for integers and for what has no such name."""
    words = {
        "bool": "bool", "float": "float", "none": "None", "Optional": "None", "unicode": "str", "str": "str",
        "array": "array", "Tuple": "tuple", "UniTuple": "tuple", "complex": "complex",
    }  # fmt: skip
    answer = answer.removeprefix("Literal[")
    return next((word for start, word in words.items() if answer.startswith(start)), None)


def kind_of(answer: Any) -> str | None:
    """What a policy in plain Python answered with, in the same words; None for a whole number."""
    if isinstance(answer, np.generic):
        answer = answer.item()
    if isinstance(answer, int) and not isinstance(answer, bool):
        return None
    return {type(None): "None", np.ndarray: "array"}.get(type(answer), type(answer).__name__)


def wrong_kind(name: str, kind: str) -> ConfigError:
    return ConfigError(f"answers with {kind}", place=f"policy {name}", expected=ANSWER)


# A user's errors


def is_ours(choose: Any) -> bool:
    """Whether the function is a part of agentctl: then an error in it is a bug."""
    return _file(choose).startswith(OURS)


def _file(choose: Any) -> str:
    code = getattr(getattr(choose, "py_func", choose), "__code__", None)
    return code.co_filename if code else ""


def blame(choose: Any, error: Exception, request: int | None = None) -> Exception:
    """What to raise when `choose` raised `error`: a ConfigError that names the line of the user's file."""
    return error if is_ours(choose) else blame_file(_file(choose), error, request)


def blame_file(file: str, error: BaseException, request: int | None = None) -> Exception:
    """The same for code of a user's file, run on purpose."""
    if isinstance(error, AgentctlError):
        return error
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f"{Path(file).name}:{lines[-1]}" if lines else Path(file).name
    if isinstance(error, AttributeError) and hasattr(type(error.obj), "_fields"):
        return _no_field(type(error.obj), str(error.name), place)
    where = "" if request is None else f" (request {request})"
    hint = None if lines else "`agentctl policies check` finds the line"
    return ConfigError(one_line(f"{type(error).__name__}: {error}") + where, place=place, hint=hint)


def one_line(text: str) -> str:
    first = text.strip().split("\n")[0]
    return first if len(first) <= LONGEST else f"{first[:LONGEST]} ..."


def _no_field(record: Any, field: str, place: str) -> ConfigError:
    """`record` is View, Requests or the policy's Params."""
    fields = record._fields
    hint = suggestion(field, fields) if fields else "it has no fields"
    if not hint.startswith("known"):
        hint += f"; known: {', '.join(sorted(fields))}"
    return ConfigError(f"{record.__name__} has no field `{field}`", place=place, hint=hint)


def _of_compiler(name: str, choose: Any, error: Exception, records: tuple[Any, ...]) -> ConfigError:
    """The first cause in a compiler's message, at the line that it names."""
    text = str(error)
    found = re.search(r'File "(?:[^"\n]*/)?([^"/\n]+)", line (\d+)', text)
    place = f"{found[1]}:{found[2]}" if found else Path(_file(choose)).name
    unknown = re.search(r"Unknown attribute '(\w+)' of type (\w+)\(", text)
    for record in records:
        if unknown and unknown[2] == record.__name__:
            return _no_field(record, unknown[1], place)
    mixed = re.search(r"Can't unify return type from the following types: (.*)", text)
    for answer in mixed[1].split(", ") if mixed else ():
        if kind := _word(answer):
            return wrong_kind(name, kind)
    skipped = ("Failed in nopython", "During: ", "Rejected as", "No implementation of function None")
    lines = [line for line in text.split("\n") if line.strip() and not line.strip().startswith(skipped)]
    fact = lines[0] if isinstance(error, NumbaError) and lines else f"{type(error).__name__}: {text}"
    hint = "numba compiles a part of Python; a function without @njit runs as it is, slower"
    return ConfigError(
        f"cannot be compiled: {one_line(fact).split(', defined at')[0]}", place=place, hint=hint
    )
