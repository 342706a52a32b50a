"""A policy in a file of the user's own: `./mine.py:choose`.

    from numba import njit

    @njit                                       # compiled; without it the function runs as it is, slower
    def choose(view, requests, r, my):          # -> number of an engine
        return view.inflight_requests.argmin()

The file may also have, each left out when not needed:

    class Params(NamedTuple)   parameters with their defaults, all numbers, handed over as floats in `my`; one
                               called `tie` is the tie rule
    memory                     function (requests, sessions, engines) -> numbers kept in view.memory
    cost                       function like choose -> one number per engine, the least of which is chosen
    sees                       fields of the view that it reads; default: found in the source

or say the same with @policy (agentctl.policies.base), as a plug-in does. The file is run: it is the user's
own code, named on purpose.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from numba.extending import is_jitted

from agentctl.errors import ConfigError
from agentctl.policies._names import file_and_function
from agentctl.policies.base import TIES, NoParams, Policy, registered
from agentctl.sim.bound import blame_file
from agentctl.sim.view import View
from agentctl.toml import suggestion

NO_SIGNALS = ("now", "seed", "last_chosen")  # every router knows these
PRIVATE = ("step_ends_at",)  # an engine's own: for policies whose name begins with `oracle`
SIGNALS = tuple(field for field in View._fields if field not in NO_SIGNALS)


def load_user_policy(name: str) -> Policy:
    """The policy `FILE.py:FUNCTION`; raises ConfigError with the line at which the file fails."""
    file, function = file_and_function(name)
    module, tree = _run(Path(file))
    place = f"{Path(file).name}:{function}"
    choose = getattr(module, function, None)
    if not callable(choose):
        known = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        hint = suggestion(function, known) if known else "it has no function at all"
        raise ConfigError(f"has no function `{function}`", place=Path(file).name, hint=hint)
    plain = getattr(choose, "py_func", choose)
    parameters = list(inspect.signature(plain).parameters)
    if len(parameters) != 4:
        raise ConfigError(
            f"takes {len(parameters)} arguments", place=place, expected="(view, requests, r, my)"
        )
    found = registered(choose)
    if found is not None:
        return replace(found, name=place, my=_as_floats(type(found.my), place))
    words = [inspect.cleandoc(text) for text in (module.__doc__, plain.__doc__) if text]
    return Policy(
        name=place,
        choose=choose,
        my=_as_floats(getattr(module, "Params", NoParams), place),
        source=Path(file).name,
        sees=_sees(getattr(module, "sees", None), tree, parameters[0], place),
        from_profile={},
        explanation="\n\n".join(words),
        memory=_function(module, "memory", place),
        cost=_function(module, "cost", place),
    )


def _run(path: Path) -> tuple[ModuleType, ast.Module]:
    try:
        text, changed = path.read_text(encoding="utf-8"), path.stat().st_mtime_ns
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", place=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8 text", place=str(path)) from error
    return _module(path.resolve(), text, changed)


@cache
def _module(path: Path, text: str, changed: int) -> tuple[ModuleType, ast.Module]:
    """The file, run once, as a module that other modules and numba's cache find again."""
    module = ModuleType(f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    sys.path.append(str(path.parent))  # what lies beside it can be imported
    try:
        tree = ast.parse(text, str(path))
        exec(compile(tree, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        place = f"{Path(error.filename or path).name}:{error.lineno}"
        raise ConfigError(f"SyntaxError: {error.msg}", place=place) from error
    except (Exception, SystemExit) as error:  # whatever the file does when it is run
        raise blame_file(str(path), error) from error
    finally:
        sys.path.remove(str(path.parent))
    for function in vars(module).values():
        if is_jitted(function) and function.py_func.__code__.co_filename == str(path):
            _check_bounds(function.targetoptions)
    return module, tree


def _check_bounds(options: dict[str, Any]) -> None:
    """A wrong index in compiled code is then an error, and no crash, unless the user says otherwise."""
    if options.get("boundscheck") is None:
        options["boundscheck"] = True


def _as_floats(params: Any, place: str) -> Any:
    """The parameters with their defaults, as floats: what a compiled policy gets, a plain one gets too."""
    if not hasattr(params, "_field_defaults"):
        raise ConfigError("is no NamedTuple", place=f"{place}: Params", expected="class Params(NamedTuple)")
    for field in params._fields:
        value = params._field_defaults.get(field)
        if not isinstance(value, int | float):
            fact = f"{field} is {value!r}" if field in params._field_defaults else f"{field} has no default"
            raise ConfigError(fact, place=f"{place}: Params", expected="a number")
        if field == "tie" and value not in range(len(TIES)):
            rules = ", ".join(f"{number} {rule}" for number, rule in enumerate(TIES))
            raise ConfigError(f"tie is {value!r}", place=f"{place}: Params", expected=rules)
    return params(*(float(params._field_defaults[field]) for field in params._fields))


def _function(module: ModuleType, name: str, place: str) -> Callable[..., Any] | None:
    found = getattr(module, name, None)
    if found is not None and not callable(found):
        raise ConfigError(f"is {found!r}", place=f"{place}: {name}", expected="a function")
    return found


def _sees(declared: Any, tree: ast.Module, view: str, place: str) -> tuple[str, ...]:
    """Fields that it says it sees, or those that the file reads of a name like the view's."""
    read = fields_read(tree, view)
    if declared is None:
        read = set(SIGNALS) - set(PRIVATE) if read is None else read
        sees = tuple(field for field in SIGNALS if field in read)
    else:
        sees = tuple(declared)
        for field in sees:
            if field not in View._fields:
                hint = suggestion(str(field), SIGNALS)
                raise ConfigError(f"names {field!r}", place=f"{place}: sees", hint=hint)
        for field in sorted((read or set()) & set(SIGNALS) - set(sees)):
            raise ConfigError(f"leaves out `{field}`, which the file reads", place=f"{place}: sees")
    function = place.rpartition(":")[2]
    for field in set(sees) & set(PRIVATE):
        if not function.startswith("oracle"):
            fact = f"reads {field}, which no router can know"
            raise ConfigError(fact, place=place, expected="a function named oracle_...")
    return sees


def fields_read(tree: ast.Module, view: str) -> set[str] | None:
    """Attributes of the name `view` in a file; None when the view goes where this cannot follow."""
    of_view = {
        id(node.value): node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and not node.attr.startswith("_")
    }
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == view]
    if any(id(node) not in of_view for node in uses):
        return None
    return {of_view[id(node)] for node in uses}
