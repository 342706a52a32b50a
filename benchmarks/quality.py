"""How far the predictors of accuracy and answer length are off, where the truth is known.

    python benchmarks/quality.py [--seeds 5]
    python benchmarks/quality.py --write-labels sample_traces/weka_80_labels.csv.gz

First table: made-up labels (0 or 1) of known probability, on sessions that no prediction saw: RMSE of the
predicted score to the probability, beside that of the task's mean. Second: answer lengths of the sample
traces. `--write-labels` writes made-up labels of the Weka sample's shorter sessions, as above, and the task
alone of the others.
"""

from __future__ import annotations

import argparse
import gzip
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from agentctl.ingest.build import ingest
from agentctl.labels import Labels, labels_of, read_labels
from agentctl.predictions import predict
from agentctl.trace import Trace

SAMPLES = Path(__file__).parents[1] / "sample_traces"
MODELS = ("small", "medium", "large")
TASKS = ("explain", "edit", "debug")
SCORE = np.array([[0.70, 0.85, 0.92], [0.45, 0.72, 0.86], [0.25, 0.55, 0.80]])  # [task, model]
LONG = np.array([0.15, 0.10, 0.03])  # lost on a long prompt, won on a short one
FACTOR = np.array([0.7, 1.0, 1.2])  # of the logged answer's length
MOST_TURNS = 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write-labels", type=Path, metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weka = opened("weka_80.jsonl.zst", folder)
        if args.write_labels:
            labelled = made_up(weka, seed=0)[0]
            write(args.write_labels, pl.concat([labelled, others(weka, labelled)], how="diagonal"))
            return
        accuracy(weka, args.seeds, folder)
        lengths(weka)
        lengths(opened("mooncake_conversation.jsonl.gz", folder))
        lengths(opened("vllm_llama_300.jsonl.gz", folder))


def opened(name: str, folder: str) -> Trace:
    return ingest([SAMPLES / name], Path(folder) / f"{name.split('.')[0]}.trace").trace


def made_up(trace: Trace, seed: int) -> tuple[pl.DataFrame, np.ndarray]:
    """(labels, their true probabilities): a session has a task; long prompts are harder for small models."""
    rng = np.random.default_rng(seed)
    rows = trace.requests(["request_id", "session_id", "turn_index", "prompt_tokens", "output_tokens"])
    rows = rows.filter(pl.len().over("session_id") <= MOST_TURNS).sort(
        "session_id", "turn_index", "request_id"
    )
    session = rows["session_id"].rank("dense").to_numpy() - 1
    task = rng.integers(0, 3, session.max() + 1)[session]
    length = np.tanh(np.log(rows["prompt_tokens"].to_numpy() / rows["prompt_tokens"].median()))
    truth = np.clip(SCORE[task] - LONG * length[:, None], 0.02, 0.98)
    score = rng.random(truth.shape) < truth
    tokens = rows["output_tokens"].to_numpy()[:, None] * FACTOR * rng.lognormal(0, 0.3, truth.shape)
    n = rows.height
    table = pl.DataFrame(
        {
            "request_id": rows["request_id"].to_numpy().repeat(3),
            "task": np.array(TASKS)[task].repeat(3),
            "model": np.tile(MODELS, n),
            "score": score.ravel().astype(int),
            "output_tokens": np.maximum(tokens.round(), 1).astype(int).ravel(),
        }
    )
    return table, truth


def others(trace: Trace, labelled: pl.DataFrame) -> pl.DataFrame:
    """The task of the requests without labels, by session."""
    rows = trace.requests(["request_id", "session_id"]).join(labelled, on="request_id", how="anti")
    number = pl.col("session_id").rank("dense").cast(pl.Int64) % 3
    named = number.replace_strict(dict(enumerate(TASKS)), return_dtype=pl.String)
    return rows.sort("session_id", "request_id").select("request_id", named.alias("task"))


def write(path: Path, table: pl.DataFrame) -> None:
    text = io.BytesIO()
    table.write_csv(text)
    path.write_bytes(gzip.compress(text.getvalue(), mtime=0))


def accuracy(trace: Trace, seeds: int, folder: str) -> None:
    print("labels on the Weka sample     RMSE to truth: predicted   task mean  ECE      seconds")
    for seed in range(seeds):
        table, truth = made_up(trace, seed)
        file = Path(folder) / f"{seed}.csv.gz"
        write(file, table)
        start = time.perf_counter()
        found = predict(trace, read_labels(file), MODELS, seed=seed)
        took = time.perf_counter() - start
        place = {name: row for row, name in enumerate(found.request_ids)}
        rows = [place[name] for name in table["request_id"][::3]]
        off = float(np.sqrt(np.mean((found.accuracy[rows] - truth) ** 2)))
        told = found.report["accuracy"]["overall"]
        print(f"seed {seed}, {told['n']:,} labels {off:>32.4f} {plain(found, truth, rows):>11.4f}"
              f" {told['calibration_error']:>6.4f} {took:>8.1f}")  # fmt: skip


def plain(found: object, truth: np.ndarray, rows: list[int]) -> float:
    """RMSE of the mean score of the task on the model, with all labels in it."""
    task, score = found.task[rows], found.score[rows]
    means = np.stack([score[task == t].mean(axis=0) for t in range(len(found.tasks))])
    return float(np.sqrt(np.mean((means[task] - truth) ** 2)))


def lengths(trace: Trace) -> None:
    """The log's own answers, as those of one model."""
    rows = trace.requests(["request_id", "output_tokens"])
    found = predict(trace, own_answers(rows), ["logged"])
    told = found.report["output_length"]["overall"]
    left = found.report["remaining"]
    n, sessions, mean = told["n"], told["sessions"], told["mean_tokens"]
    print(f"{trace.name}: {n:,} answers, {sessions:,} sessions, {mean:.0f} tokens")
    print(f"  mean off by {told['mean_bias_tokens']:.1f}, within the median {told['median_coverage']:.3f}")
    print(f"  within 90 % {told['high_coverage']:.3f} +- {told['high_coverage_error']:.3f}")
    for name in ("median", "high"):
        ours, theirs = (told[f"{kind}{name}_pinball_tokens"] for kind in ("", "plain_"))
        print(f"  pinball loss of the {name} {ours:.1f} tokens, without features {theirs:.1f}")
    print(f"  {left['n']:,} outlived the median; ended within the rest, and its pinball loss:")
    for name, what in (("median", "the table's"), ("as_long_again", "as long again")):
        print(f"    {what} {left[f'{name}_coverage']:.3f}, {left[f'{name}_pinball_tokens']:.1f}")


def own_answers(rows: pl.DataFrame) -> Labels:
    return labels_of(
        rows.select(
            pl.int_range(pl.len()).alias("row"), "request_id", pl.lit(None, pl.String).alias("task"),
            pl.lit("logged").alias("model"), pl.lit(None, pl.Float64).alias("score"),
            pl.lit(None, pl.Float64).alias("prompt_tokens"), pl.col("output_tokens").cast(pl.Float64),
            pl.lit("log").alias("file"),
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
