"""Whom we talk to: this machine, unless its owner says otherwise; with a key from the environment only."""

from __future__ import annotations

import ipaddress
import os
import re

from agentctl.errors import UsageError

KEYS = ("AGENTCTL_API_KEY", "OPENAI_API_KEY")
_URL = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(/[A-Za-z0-9._~/-]*)?")


def base_url(text: str, owned: bool) -> str:
    """`http://127.0.0.1:8000` or `.../v1` as `http://127.0.0.1:8000/v1`; raises UsageError.

    owned  the caller says that the endpoint is theirs; else only this machine is talked to
    """
    found = _URL.fullmatch(text.strip())
    if not found or (found[3] and not 0 < int(found[3]) < 65536) or not _is_host(found[2]):
        raise UsageError(
            "is no address of an endpoint", place="URL", expected="http://HOST:PORT or https://HOST/v1",
            hint="keys and passwords do not belong into it: " + " or ".join(KEYS),
        )  # fmt: skip
    if not owned and not is_loopback(found[2]):
        raise UsageError(
            "is not on this machine, and probing loads it for minutes",
            place=f"URL {found[2]}",
            expected="localhost or 127.0.0.1",
            hint="--i-own-this-endpoint, if you do and nobody else needs it now",
        )
    path = (found[4] or "").rstrip("/")
    port = f":{found[3]}" if found[3] else ""
    return f"{found[1]}://{found[2]}{port}{path if path.endswith('/v1') else path + '/v1'}"


def _is_host(host: str) -> bool:
    """In brackets only an IPv6 address is one; a name's parts have 1 to 63 letters."""
    if host.startswith("["):
        try:
            return ipaddress.ip_address(host.strip("[]")).version == 6
        except ValueError:
            return False
    return all(0 < len(part) < 64 for part in host.removesuffix(".").split("."))


def is_loopback(host: str) -> bool:
    """By its text alone: a name that resolves to this machine today may not tomorrow."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def api_key() -> str | None:
    """From the environment; it goes into a header and nowhere else. Raises UsageError, without a word of it,
    for what no header holds."""
    name = next((name for name in KEYS if os.environ.get(name)), None)
    if name is None:
        return None
    key = os.environ[name]
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError("holds spaces, line ends or other than ASCII", place=name, expected="a key")
    return key
