"""`agentctl policies`: what can be compared, what each does, and whether a policy of one's own works."""

from __future__ import annotations

from typing import Annotated

import typer

from agentctl.errors import UsageError


def policies(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME | check FILE.py[:FUNCTION]]",
            help="A policy, to tell all about it; `check` and a file, to try a policy of your own.",
        ),
    ] = None,
) -> int:
    """List the routing policies; tell all about one; or check one that you wrote.

    A check compiles the function, replays 100 requests compiled and in plain Python, compares them bit for
    bit and measures its speed. Exit code 3: they differ.
    """
    match words or []:
        case []:
            return _list(ctx)
        case ["check", name]:
            return _check(ctx, name)
        case [name] if name != "check":
            return _tell(ctx, name)
    expected = "nothing, NAME, or check FILE.py[:FUNCTION]"
    raise UsageError(f"cannot read {' '.join(words or [])!r}", expected=expected)


def _list(ctx: typer.Context) -> int:
    from agentctl.policies._describe import document, overview
    from agentctl.policies.base import load_policy, policy_names

    found = [load_policy(name) for name in policy_names()]
    ctx.obj.result(document(found), overview(found))
    return 0


def _tell(ctx: typer.Context, name: str) -> int:
    from agentctl.policies._describe import document, story
    from agentctl.policies.base import load_policy

    found = load_policy(name)
    ctx.obj.result(document([found]), story(found))
    return 0


def _check(ctx: typer.Context, name: str) -> int:
    from agentctl.cli.inputs import announce_compilation
    from agentctl.policies._check import check_policy
    from agentctl.policies._describe import check_document, check_failed, check_sections
    from agentctl.policies._names import is_user_policy, parse_policy
    from agentctl.policies.base import load_policy

    name, params = parse_policy(name, "policies check")
    if not is_user_policy(name):
        raise UsageError(f"{name!r} is no Python file", place="check", expected="FILE.py[:FUNCTION]")
    policy = load_policy(name, params)
    announce_compilation(ctx.obj)
    found = check_policy(policy)
    ctx.obj.result(check_document(found), check_sections(found))
    return 3 if check_failed(found) else 0
