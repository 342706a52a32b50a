"""What a policy is, how it is found, and how ties break.

A policy is one file of this folder: a function `choose(view, requests, r, my) -> engine` registered by
`@policy(name, ...)`, with its parameters in a NamedTuple `my`. The function is pure: what it may know
stands in `view` (agentctl.sim.view.View) and in request r itself. A file that registers a policy is all
that it takes; nothing lists them.
"""

from __future__ import annotations

import importlib
import inspect
import math
import operator
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from msgspec import Meta
from numba import njit
from numpy.typing import NDArray

from agentctl.errors import ConfigError
from agentctl.policies._files import PolicyFile, find_policy_file, policy_file_names
from agentctl.policies._names import FORM, is_user_policy
from agentctl.policies._plugins import import_plugins
from agentctl.sim.hashing import tie_hash
from agentctl.sim.sight import MemorySize
from agentctl.sim.view import View
from agentctl.toml import suggestion
from agentctl.workload import Requests

FIRST, ROTATE, RANDOM, LEXICOGRAPHIC = 0, 1, 2, 3
TIES = ("first", "rotate", "random", "lexicographic")

# What a field of Params may be, where not any number will do
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]

Choose = Callable[[View, Requests, int, Any], int]
Cost = Callable[[View, Requests, int, Any], NDArray[Any]]


class NoParams(NamedTuple):
    """A policy without parameters and without ties."""


@dataclass(frozen=True)
class Policy:
    """A policy with its parameters. `sees` are the fields of the view that it reads: the signals it needs."""

    name: str
    choose: Choose
    my: Any  # NamedTuple; a field `tie` (FIRST, ROTATE ...) is the tie rule, the others are parameters
    source: str
    sees: tuple[str, ...]
    from_profile: Mapping[str, str]  # parameters whose default is a coefficient of the batch-time model
    explanation: str  # the docstring of its file
    memory: MemorySize | None = None  # how many numbers it keeps in view.memory
    cost: Cost | None = None  # what it minimises, per engine: shown by --explain
    places: bool = False  # answers with a placement (agentctl.sim.roles) and knows of roles
    needs_fleet: bool = False  # chooses between models
    estimator: str | None = None  # of view.ttft_s: one of agentctl.estimators.ttft
    file: PolicyFile | None = None  # of a production policy: its router, version, keys, signals, requirements

    def __reduce__(self) -> tuple[Any, ...]:
        """By its name, for workers elsewhere: there it is loaded, and found compiled."""
        return _again, (self.name, tuple(self.my) if self.my is not None else None)

    @property
    def params(self) -> dict[str, float]:
        """Parameters by name, without the tie rule. NaN: taken from the profile, which is not known yet."""
        return {key: value for key, value in self.my._asdict().items() if key != "tie"}

    @property
    def tie(self) -> str | None:
        """The tie rule by name, None when the policy cannot tie."""
        return TIES[int(self.my.tie)] if hasattr(self.my, "tie") else None

    @property
    def takes_single_coefficients(self) -> bool:
        """Parameters are coefficients of the profile, each for itself and not the batch time as a whole."""
        return bool(self.from_profile) and "b0" not in self.from_profile.values()

    @property
    def needs_one_gateway(self) -> bool:
        """Its placements follow from books that it keeps of all sessions."""
        return self.places and self.memory is not None

    @property
    def n_signals(self) -> int:
        return len(self.sees)


_registry: dict[str, Policy] = {}


def policy(
    name: str,
    *,
    params: type = NoParams,
    source: str,
    sees: tuple[str, ...] = (),
    from_profile: Mapping[str, str] | None = None,
    memory: MemorySize | None = None,
    cost: Cost | None = None,
    places: bool = False,
    needs_fleet: bool = False,
    estimator: str | None = None,
) -> Callable[[Choose], Choose]:
    """Register `choose` under `name`, with the defaults of `params`.

    memory  (requests, sessions, engines) -> how many numbers the policy keeps in `view.memory`
    cost    (view, requests, r, my) -> one number per engine, the least of which `choose` takes
    places  `choose` answers with a placement (agentctl.sim.roles), also LATER, NOT_YET and REFUSED
    needs_fleet  it looks at accuracy or cost, which there are only between pools of different models
    estimator    of `view.ttft_s` there, by its name in agentctl.estimators.ttft

    Raises ConfigError when another file has a policy of that name.
    """

    def register(choose: Choose) -> Choose:
        if name in _registry and _file(_registry[name].choose) != _file(choose):
            raise ConfigError("a policy of that name exists", place=f"policy {name}")
        explanation = inspect.cleandoc(inspect.getmodule(choose).__doc__ or "")  # type: ignore[union-attr]
        _registry[name] = Policy(
            name, choose, params(), source, sees, from_profile or {}, explanation, memory, cost, places,
            needs_fleet, estimator,
        )  # fmt: skip
        return choose

    return register


def registered(choose: Choose) -> Policy | None:
    """The policy of this function, when it was registered."""
    return next((policy for policy in _registry.values() if policy.choose is choose), None)


def _file(choose: Any) -> str:
    return str(getattr(choose, "py_func", choose).__code__.co_filename)


def policy_names() -> list[str]:
    """All names, sorted: formulas, plug-ins, production policies. Imports every file of the folder."""
    return sorted([*formula_names(), *policy_file_names()])


def formula_names() -> list[str]:
    """Names that a function is registered under, sorted."""
    import agentctl.policies as folder

    for module in pkgutil.iter_modules(folder.__path__):
        if module.name != "base" and not module.name.startswith("_"):
            importlib.import_module(f"{folder.__name__}.{module.name}")
    import_plugins()
    return sorted(_registry)


def load_policy(
    name: str,
    params: Mapping[str, Any] | None = None,
    tie: str = "policy",
    batch_time: Any = None,
    predictive_only: bool = False,
) -> Policy:
    """The policy `name` with `params` over its defaults.

    name        a formula (`lmetric`), a production policy (`vllm-router:kv_aware`), or a function of a file
                (`./mine.py:choose`, see _user.py)
    tie         policy (its own rule) | first | rotate | random | lexicographic
    batch_time  estimators.batch_time.BatchTime, from which some parameters take their default
    predictive_only  its coefficients are not known one by one: no parameter takes a single one

    Raises ConfigError for an unknown name, parameter or value, and for one that has to be given.
    """
    found = _find(name)
    my = found.my
    unknown = [mine for mine in found.from_profile if mine not in (params or {})]
    if predictive_only and found.takes_single_coefficients and unknown:
        raise ConfigError(
            f"takes {' and '.join(unknown)} from the profile, whose coefficients are not known one by one "
            "(predictive_only)",
            place=f"policy {found.name}",
            hint=f"give them ({found.name}:{','.join(f'{mine}=SECONDS' for mine in unknown)}), or take a "
            "profile of agentctl calibrate steps",
        )
    if batch_time is not None:
        my = my._replace(**{mine: getattr(batch_time, theirs) for mine, theirs in found.from_profile.items()})
    my = my._replace(**_checked(found, params or {}))
    if tie != "policy":
        if tie not in TIES:
            raise ConfigError(f"is {tie!r}", place="tie", expected=" or ".join(("policy", *TIES)))
        if found.tie is not None:
            my = my._replace(tie=TIES.index(tie))
    return replace(found, my=my)


def _again(name: str, values: tuple[float, ...] | None) -> Policy:
    found = _find(name)
    return found if values is None else replace(found, my=type(found.my)(*values))


def _find(name: str) -> Policy:
    if is_user_policy(name):
        from agentctl.policies._user import load_user_policy

        return load_user_policy(name)
    file = find_policy_file(name)
    return _with_file(file) if file else _formula(name, f"policy {name}")


def _formula(name: str, place: str) -> Policy:
    if name not in _registry and name not in policy_names():
        has_params = name.partition(":")[0] in _registry
        hint = f"parameters are written {FORM}" if has_params else suggestion(name, policy_names())
        raise ConfigError("unknown policy", place=place, hint=hint)
    return _registry[name]


def _with_file(file: PolicyFile) -> Policy:
    """The formula of a policy file with the file's defaults; a value that it gives is not the profile's."""
    found = _formula(file.formula, f"policy {file.name}: formula")
    given = {key: param.value for key, param in file.params.items() if param.value is not None}
    my = found.my._replace(**_checked(replace(found, name=file.name), given))
    if file.tie is not None and found.tie is not None:
        my = my._replace(tie=TIES.index(file.tie))
    theirs = {key: coefficient for key, coefficient in found.from_profile.items() if key not in given}
    return replace(found, name=file.name, my=my, from_profile=theirs, file=file)


def _checked(found: Policy, params: Mapping[str, Any]) -> dict[str, float]:
    limits = _limits_of(type(found.my))
    for key, value in params.items():
        place = f"policy {found.name}: {key}"
        if key == "tie":
            raise ConfigError("is not a parameter", place=place, hint="the tie rule is `tie` of [router]")
        if key not in found.params:
            hint = suggestion(key, found.params) if found.params else "it has no parameters"
            raise ConfigError("unknown parameter", place=place, hint=hint)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"is {value!r}", place=place, expected="a finite number")
        _check_limits(value, limits.get(key), place)
    return {key: float(value) for key, value in params.items()}


def _limits_of(params: type) -> dict[str, Meta]:
    """Of the fields that have any."""
    try:
        hints = get_type_hints(params, include_extras=True)
    except NameError:  # a user's, of types that are not imported
        return {}
    return {key: more for key, hint in hints.items() for more in get_args(hint) if isinstance(more, Meta)}


def _check_limits(value: float, limits: Meta | None, place: str) -> None:
    if limits is None:
        return
    for limit, holds, words in (
        (limits.ge, operator.ge, "at least"), (limits.gt, operator.gt, "above"),
        (limits.le, operator.le, "at most"), (limits.lt, operator.lt, "below"),
    ):  # fmt: skip
        if limit is not None and not holds(value, limit):
            raise ConfigError(f"is {value:g}", place=place, expected=f"a number {words} {limit:g}")


# Ties


@njit(cache=True)
def pick_least(score: NDArray[Any], then: NDArray[Any], seed: int, last_chosen: int, r: int, tie: int) -> int:
    """The engine with the least `score`; among equal ones the least `then`; then by the tie rule.

    first          the lowest engine number
    rotate         the first tied engine after the router's last choice, in a circle
    random         by a hash of the seed and the request's number: the same for every policy
    lexicographic  the least engine number as text, as routers sort names: 0, 1, 10, 11, 2
    """
    least, second, n_tied = score[0], then[0], 0
    for engine in range(score.size):
        if score[engine] < least or (score[engine] == least and then[engine] < second):
            least, second, n_tied = score[engine], then[engine], 1
        elif score[engine] == least and then[engine] == second:
            n_tied += 1
    wanted = 0
    if tie == RANDOM:
        wanted = tie_hash(seed, r) % max(n_tied, 1)  # none is tied where all scores are NaN
    start = (last_chosen + 1) % score.size if tie == ROTATE else 0
    chosen = -1
    for step in range(score.size):
        engine = (start + step) % score.size
        if score[engine] != least or then[engine] != second:
            continue
        if tie == LEXICOGRAPHIC:
            if chosen < 0 or comes_before(engine, chosen):
                chosen = engine
        elif wanted == 0:
            return engine
        else:
            wanted -= 1
    return chosen


@njit(cache=True)
def comes_before(a: int, b: int) -> bool:
    """Whether the decimal text of `a` sorts before that of `b` (both >= 0)."""
    digits_a, digits_b = 10, 10  # 10 to the number of digits
    while digits_a <= a:
        digits_a *= 10
    while digits_b <= b:
        digits_b *= 10
    padded_a, padded_b = a * digits_b, b * digits_a  # the same number of digits, zeros at the end
    return padded_a < padded_b or (padded_a == padded_b and digits_a < digits_b)


@njit(cache=True)
def no_second(score: NDArray[Any]) -> NDArray[np.int64]:
    """For policies without a second criterion: equal everywhere."""
    return np.zeros(score.size, dtype=np.int64)


@njit(cache=True)
def minmax(values: NDArray[Any]) -> NDArray[np.float64]:
    """Whole numbers scaled to 0..1 from the least to the most; 0 everywhere when all are equal."""
    least, most = values.min(), values.max()
    return (values - least) / max(most - least, 1)


@njit(cache=True)
def prefix_key(view: View, n_blocks: int) -> int:
    """A number that two requests share exactly when their first `n_blocks` blocks hold the same content; -1
    where the request has fewer. Only blocks of the prompt are known when it arrives: ask for no more."""
    before = 0
    for at in range(view.path_start, view.path_stop):
        length = view.path[at].length
        if n_blocks <= before + length:
            return (view.path[at].line << 32) + n_blocks - before
        before += length
    return -1
