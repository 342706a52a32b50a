"""Predictors of accuracy and answer length from labels and a log (behind `agentctl calibrate labels`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentctl import __version__
from agentctl.calibrate import CALIBRATE_SCHEMA
from agentctl.calibrate_labels_sections import label_sections
from agentctl.files import atomic_file
from agentctl.labels import Labels
from agentctl.predictions import FOLDS, HIGH, Predictions, predict
from agentctl.present import Section
from agentctl.trace import Trace


@dataclass(frozen=True)
class LabelCalibration:
    """document: what --json prints; predictions: of every request on every model."""

    document: dict[str, Any]
    sections: tuple[Section, ...]
    predictions: Predictions

    def write(self, path: Path, force: bool = False) -> None:
        """The predictions as Parquet: one row a request and model, in the order of the trace."""
        with atomic_file(path, force=force) as temporary:
            pq.write_table(prediction_table(self.predictions), temporary, compression="zstd")


def calibrate_labels(
    trace: Trace,
    labels: Labels,
    models: Sequence[str] | None = None,
    *,
    seed: int = 0,
    folds: int = FOLDS,
    high: float = HIGH,
) -> LabelCalibration:
    """Learn accuracy and length of answers, and say how far off that is on sessions left out.

    models  to predict; default: all that the labels name. Raises what predictions.predict raises.
    """
    found = predict(trace, labels, list(models or labels.models), seed, folds, high=high)
    table = found.remaining.arrays
    rest = {
        "predicted_tokens": table.predicted.tolist(),
        "emitted_tokens": table.emitted.tolist(),
        "left_tokens": table.tokens.tolist(),
        "answers": found.remaining.count.tolist(),
    }
    report = found.report
    document = {
        "schema": CALIBRATE_SCHEMA,
        "source": "labels",
        **report,
        "remaining": {**report["remaining"], "table": rest},
        "provenance": {
            "agentctl_version": __version__,
            "trace_digest": trace.digest,
            "inputs": labels.inputs,
        },
    }
    return LabelCalibration(document, label_sections(found), found)


def prediction_table(found: Predictions) -> pa.Table:
    """One row a request and model; unknown is null."""
    n, m = found.accuracy.shape
    task = pa.array(np.repeat(found.task, m), mask=np.repeat(found.task, m) < 0)
    columns = {
        "request_id": pa.array(np.repeat(found.request_ids, m), pa.string()),
        "model": pa.array(np.tile(np.array(found.models, dtype=object), n), pa.string()),
        "task": pa.array(found.tasks, pa.string()).take(task),
        **{
            name: pa.array(values.ravel(), pa.float64(), from_pandas=True)  # NaN is null
            for name, values in {
                "score": found.score,
                "accuracy": found.accuracy,
                "accuracy_error": found.accuracy_error,
                "prompt_tokens": found.prompt_tokens,
                "output_tokens": found.output_tokens,
                "output_mean_tokens": found.output_mean,
                "output_q50_tokens": found.output_q50,
                f"output_q{100 * found.high:g}_tokens": found.output_high,
            }.items()
        },
    }
    return pa.table(columns)
