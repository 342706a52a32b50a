"""Policies of other distributions: modules named by entry points of the group `agentctl.policies`.

[project.entry-points."agentctl.policies"]
anything = "their_package.routing"     # importing it registers its policies with @policy
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points

from agentctl.errors import AgentctlWarning

GROUP = "agentctl.policies"


@cache
def import_plugins() -> None:
    """Import every plug-in once; one that fails is told as a warning and left out."""
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            entry.load()
        except Exception as error:  # somebody else's code: whatever it does, ours goes on
            owner = entry.dist.name if entry.dist else "an unknown distribution"
            text = f"policies of {owner} ({entry.value}) are left out: {type(error).__name__}: {error}"
            warnings.warn(text.split("\n")[0], AgentctlWarning, stacklevel=2)
