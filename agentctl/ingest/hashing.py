"""Secrets of a dataset: what hides text behind hashes, and how a log's text is cut and chained.

Every hash is h_i = BLAKE2b(key = salt, 8 bytes of digest)(h_{i-1} || piece), so that equal hashes mean equal
text from the start of the prompt on, and nobody without the salt can test a guess. h_0 is the hash of the
cache group. Chains of messages and chains of blocks carry different `person` strings: they never meet.

The salt comes from a file (0600, outside of the dataset), so that datasets made with it can be compared; or
it is ephemeral: drawn for one run, never written. Then the dataset's hashes are numbers without meaning.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from agentctl.errors import InputError, UsageError
from agentctl.ingest.blake2b import DIGEST_BYTES, chain, keyed_state
from agentctl.ingest.ids import Ids

SALT_BYTES = 32
MESSAGE, BLOCK, GROUP, NAME = (
    b"agentctl " + use.ljust(7, b"\0") for use in (b"message", b"block", b"group", b"name")
)
ALGORITHM = "BLAKE2b-64, keyed, chained"
BYTES_PER_BLOCK = 64  # of text, where no tokenizer is given: about 16 tokens of English
DEFAULT_BLOCK_TOKENS = 16

Level = Literal["token", "bytes", "message"]


@dataclass(frozen=True)
class HashOptions:
    """How text becomes hashes. The salt is never shown.

    level        token: blocks of `block_tokens` tokens of `tokenizer`; bytes: 64 bytes of text; message
    tools_first  chat templates put tool definitions before everything else, or after the system message
    names        ids and names become hashes, too (see ingest/hidden.py)
    """

    salt: bytes = field(default_factory=lambda: os.urandom(SALT_BYTES), repr=False)
    is_ephemeral: bool = True
    level: Level = "bytes"
    tokenizer: Path | None = None
    block_tokens: int = DEFAULT_BLOCK_TOKENS
    tools_first: bool = True
    names: bool = False

    @property
    def salt_id(self) -> str:
        """Tells datasets of the same salt; says nothing about it."""
        return "ephemeral" if self.is_ephemeral else self.hasher(NAME, b"salt").hexdigest()

    def hasher(self, person: bytes, text: bytes = b"") -> Any:
        return hashlib.blake2b(text, digest_size=DIGEST_BYTES, key=self.salt, person=person)

    def name(self, name: str) -> str:
        """What a dataset has in place of a name: 16 hexadecimal digits, or the name itself."""
        return self.hasher(NAME, name.encode()).hexdigest() if self.names else name

    def describe(self) -> dict[str, Any]:
        """For dataset.json."""
        return {
            "algorithm": ALGORITHM,
            "salt": self.salt_id,
            "tools": "first" if self.tools_first else "after-system",
        }


def read_salt(path: Path, output: Path) -> bytes:
    """The salt in `path`, created there when there is none. Raises InputError, UsageError."""
    place = path.expanduser().resolve()
    if place.is_relative_to(output.expanduser().resolve()):
        raise UsageError(
            "lies inside the dataset, which may be handed on",
            place=f"--salt {path}",
            expected="a file outside of it",
        )
    try:
        _create(place)
        return _checked(place, str(path))
    except OSError as error:
        raise InputError(f"cannot be used as a salt ({error.strerror})", place=str(path)) from error


def _create(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(SALT_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _checked(path: Path, name: str) -> bytes:
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        salt = file.read(SALT_BYTES + 1)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(
            "can be read by others", place=name, expected="a file of mode 0600", hint=f"chmod 600 {name}"
        )
    if len(salt) != SALT_BYTES:
        raise InputError(
            f"has {'more' if len(salt) > SALT_BYTES else len(salt)} bytes",
            place=name,
            expected=f"a salt of exactly {SALT_BYTES} bytes",
            hint="a file that does not exist yet is made with a new salt",
        )
    return salt


def token_blocks(lists: Sequence[Sequence[int] | None], block_tokens: int, salt: bytes) -> Ids:
    """Chains of the full blocks of token-id lists, for logs that hold them; None is an unknown prompt."""
    state = keyed_state(salt, BLOCK)
    chains = []
    for tokens in lists:
        ids = np.asarray(tokens or (), dtype="<u4")
        whole = ids[: ids.size - ids.size % block_tokens].view(np.uint8)
        chains.append(chain(state, 0, whole, 4 * block_tokens, 4 * block_tokens)[0])
    starts = np.concatenate(([0], np.cumsum([blocks.size for blocks in chains], dtype=np.int64)))
    values = np.concatenate(chains) if chains else np.empty(0, dtype=np.uint64)
    return Ids(values, starts, np.array([tokens is None for tokens in lists], dtype=np.bool_))
