"""Every error that agentctl raises on purpose, and the exit code it ends a command with.

    AgentctlError                  1  could not be done
    ├── InputError                 1  data that cannot be used as it is: place, fact, expectation, cure
    │   ├── UnknownFormatError     1  no reader, or more than one, recognises the file
    │   └── BadRecordsError        1  more bad records than the budget allows
    ├── OutputError                1  the result cannot be written (exists, locked, disk)
    ├── UsageError                 2  a flag or an argument that makes no sense
    │   └── ConfigError            2  a key or a value in a configuration file
    └── ObjectiveNotMetError       3  done, but the objective was not met

Libraries raise, the command line prints. Messages name places and types, never the content of a log.
"""

from __future__ import annotations


class AgentctlError(Exception):
    """`fact` is what is wrong; `place` says where, `expected` what would be right, `hint` the way out."""

    exit_code = 1

    def __init__(
        self, fact: str, *, place: str | None = None, expected: str | None = None, hint: str | None = None
    ) -> None:
        self.fact, self.place, self.expected, self.hint = fact, place, expected, hint
        super().__init__(self.message)

    @property
    def message(self) -> str:
        text = f"{self.place}: {self.fact}" if self.place else self.fact
        return f"{text}; expected {self.expected}" if self.expected else text


class InputError(AgentctlError):
    """Data that cannot be used as it is."""


class UnknownFormatError(InputError):
    """No reader, or more than one, recognises a file."""


class BadRecordsError(InputError):
    """More bad records than `--max-bad` or `--max-bad-ratio` allow."""


class OutputError(AgentctlError):
    """The result cannot be written."""


class UsageError(AgentctlError):
    """A flag or an argument that makes no sense."""

    exit_code = 2


class ConfigError(UsageError):
    """A key or a value in a configuration file that makes no sense."""


class ObjectiveNotMetError(AgentctlError):
    """The work is done and written; what was asked of it does not hold."""

    exit_code = 3


class AgentctlWarning(UserWarning):
    """A remark of a library for the person who runs it: the command line prints it in one line."""
