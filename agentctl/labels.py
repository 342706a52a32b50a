"""Labels: how well each model answered which request, or how well it does on a task on average."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl


@dataclass(frozen=True)
class Labels:
    """What the files of labels say.

    models, tasks  names, sorted
    by_request     request_id, model, score, prompt_tokens, output_tokens (on that model); one row a pair
    task_of        request_id, task, and the numeric columns named in `features`; one row a request
    task_means     task, model, score; one row a pair
    """

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    features: tuple[str, ...]
    by_request: pl.DataFrame
    task_of: pl.DataFrame
    task_means: pl.DataFrame


def read_labels(*paths: Path) -> Labels:
    """The labels in files of CSV, JSON lines or Parquet."""
    raise NotImplementedError
