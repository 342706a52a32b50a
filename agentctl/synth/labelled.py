"""Draw the task mix of model_routing.py: requests of one turn, and what every model would make of each.

A score and an output length belong to a request and a model. Within a task they are Gaussian copulas over
stratified marginals: the means are those of the model to about the last stratum, and the dependence is what
model_routing.py says.
"""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import count
from agentctl.files import atomic_file, check_output
from agentctl.present import Section, Table, Unit, Value
from agentctl.synth import model_routing as mix
from agentctl.synth.dataset import SYNTH_SCHEMA, Chains, SynthReport, check_size, request_ids, write_dataset
from agentctl.synth.draw import Dice, Requests, starts_of
from agentctl.trace import META_FILE

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LABEL_COLUMNS = ("request_id", "model", "task", "score", "output_tokens")
DIGITS = 4  # of a score


class Labelled(NamedTuple):
    """n requests in order of arrival; columns of `output` and `score` are models."""

    requests: Requests
    task: I64  # place in model_routing.TASKS
    output: I64  # tokens, [n, models]
    score: F64  # 0..1, [n, models]


def labels_path(dataset: Path) -> Path:
    """X.trace -> X.labels.csv, beside it."""
    return dataset.with_name(f"{dataset.name.removesuffix('.trace')}.labels.csv")


def synthesise_labelled(
    output: Path,
    *,
    requests: int | None = None,
    per_min: float | None = None,
    seed: int = 0,
    force: bool = False,
) -> SynthReport:
    """Write the dataset `output` and its table of labels beside it; the same arguments, the same bytes.

    requests, per_min  None: those of the paper
    """
    n = mix.REQUESTS if requests is None else requests
    rate = mix.PER_MIN if per_min is None else per_min
    check_size(n, rate)
    labels = labels_path(output)
    check_output(output, force=force, mark=META_FILE)
    check_output(labels, force=force, mark=None)
    drawn = draw_labelled(n, rate, seed)
    text = _labels_csv(drawn)
    made: dict[str, Any] = {
        "workload": mix.NAME,
        "sessions": n,
        "sessions_per_min": rate,
        "seed": seed,
        "labels": {"file": labels.name, "sha256": hashlib.sha256(text).hexdigest()},
    }
    trace = write_dataset(output, drawn.requests, Chains(), made, mix.WARNINGS, force)
    with atomic_file(labels, force=force) as file:
        file.write_bytes(text)
    document = {
        "schema": SYNTH_SCHEMA,
        "requests": n,
        "trace_digest": trace.digest,
        **made,
        "tasks": [_task_facts(drawn, number) for number in range(len(mix.TASKS))],
        "warnings": list(mix.WARNINGS),
    }
    return SynthReport(trace, document, _sections(document))


def draw_labelled(n: int, per_min: float, seed: int) -> Labelled:
    """Tasks in equal shares, shuffled; starts of a Poisson process."""
    dice = Dice(seed)
    start = starts_of(dice, n, per_min, 1.0)
    task = dice.random.permutation(np.arange(n) % len(mix.TASKS))
    prompt = np.empty(n, np.int64)
    output, score = np.empty((n, len(mix.MODELS)), np.int64), np.empty((n, len(mix.MODELS)))
    for number, each in enumerate(mix.TASKS):
        rows = np.flatnonzero(task == number)
        prompt[rows], output[rows], score[rows] = _draw_task(each, rows.size, dice)
    none = np.full(n, -1)
    requests = Requests(
        session=np.arange(n),
        turn=np.zeros(n, np.int64),
        arrival=start,
        prompt=prompt,
        output=output[:, mix.MIDDLE],
        before=none,
        base=none,
        held=np.zeros(n, np.int64),
        prefix=none,
        gap=np.full(n, np.nan),
        gap_kind=np.full(n, -1, np.int8),
    )
    return Labelled(requests, task, output, score)


def _draw_task(task: mix.Task, n: int, dice: Dice) -> tuple[I64, I64, F64]:
    """Prompt tokens [n], output tokens and scores [n, models]."""
    from scipy.special import betaincinv, ndtri

    def mixed(shared: F64, share: float) -> F64:
        """Normal scores that have `share` of their variance in common with `shared`."""
        own = dice.random.standard_normal(n)
        return np.sqrt(share) * shared + np.sqrt(1 - share) * own

    length = dice.strata(n)
    hard = mixed(ndtri(length), mix.LENGTH_DIFFICULTY**2)
    wordy = dice.random.standard_normal(n)
    output, score = [], []
    for tokens, mean in zip(task.output, task.score, strict=True):
        share = _strata_like(mixed(wordy, mix.SHARED_LENGTH), dice)
        output.append(np.rint(tokens.at(share)).astype(np.int64))
        share = _strata_like(mixed(-hard, mix.SHARED_DIFFICULTY), dice)
        beta = betaincinv(mix.SCORE_SPREAD * mean, mix.SCORE_SPREAD * (1 - mean), share)
        score.append(np.round(beta, DIGITS))
    return np.rint(task.prompt.at(length)).astype(np.int64), np.column_stack(output), np.column_stack(score)


def _strata_like(values: F64, dice: Dice) -> F64:
    """Shares in (0, 1), one in each n-th, in the order of `values`."""
    n = values.size
    rank = np.empty(n)
    rank[np.argsort(values, kind="stable")] = np.arange(n)
    return (rank + dice.random.random(n) * (1 - 2**-20) + 2**-21) / max(n, 1)


def _labels_csv(drawn: Labelled) -> bytes:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(LABEL_COLUMNS)
    ids = request_ids(drawn.task.size)
    for row, task in enumerate(drawn.task.tolist()):
        for model, name in enumerate(mix.MODELS):
            said = (mix.TASKS[task].name, f"{drawn.score[row, model]:.{DIGITS}f}", drawn.output[row, model])
            table.writerow((ids[row], name, *said))
    return text.getvalue().encode()


def _task_facts(drawn: Labelled, number: int) -> dict[str, Any]:
    rows = np.flatnonzero(drawn.task == number)

    def by_model(values: NDArray[Any]) -> dict[str, float | None]:
        means = values[rows].mean(axis=0) if rows.size else [None] * len(mix.MODELS)
        return {name: None if x is None else float(x) for name, x in zip(mix.MODELS, means, strict=True)}

    return {
        "task": mix.TASKS[number].name,
        "requests": int(rows.size),
        "prompt_tokens_mean": float(drawn.requests.prompt[rows].mean()) if rows.size else None,
        "output_tokens_mean": by_model(drawn.output),
        "score_mean": by_model(drawn.score),
        "score_published": dict(zip(mix.MODELS, mix.TASKS[number].score, strict=True)),
    }


def _sections(document: dict[str, Any]) -> tuple[Section, ...]:
    sentence = (
        f"{count(document['requests'], 'request')} of {len(mix.TASKS)} tasks drawn from {mix.NAME}, "
        f"{document['sessions_per_min'] / 60:.4g} a second, seed {document['seed']}; scores and output "
        f"lengths of {len(mix.MODELS)} models in {document['labels']['file']}"
    )
    names = [name.removeprefix("Qwen/") for name in mix.MODELS]
    lengths: list[tuple[Value, ...]] = []
    scores: list[tuple[Value, ...]] = []
    for one in document["tasks"]:
        outputs = [_whole(value) for value in one["output_tokens_mean"].values()]
        lengths.append((one["task"], one["requests"], _whole(one["prompt_tokens_mean"]), *outputs))
        scores.append((one["task"], *one["score_mean"].values()))
    head: tuple[tuple[str, Unit], ...] = (("task", ""), ("requests", "count"), ("prompt", "tokens"))
    tables = (
        Table(
            (*head, *((name, "tokens") for name in names)), tuple(lengths), "Mean lengths of outputs by model"
        ),
        Table((head[0], *((name, "ratio") for name in names)), tuple(scores), "Mean scores by model"),
    )
    sources = tuple(f"lengths of {task.name}: {task.source}" for task in mix.TASKS)
    spread = (
        f"of the scores of two models for one request a correlation of {mix.SHARED_DIFFICULTY:g} (normal "
        f"scores) is shared difficulty, which goes with the prompt's length by {mix.LENGTH_DIFFICULTY:g}; "
        f"output lengths of two models by {mix.SHARED_LENGTH:g}: guesses"
    )
    return (
        Section(
            "synth", "Synth", sentence, tables=tables, assumptions=(*sources, spread), warnings=mix.WARNINGS
        ),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
