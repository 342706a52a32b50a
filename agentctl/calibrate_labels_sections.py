"""What predictors of accuracy and answer length say of themselves, for the terminal and the HTML report."""

from __future__ import annotations

from typing import Any

from agentctl.analyzers.words import count, number, percent
from agentctl.predictions import Predictions
from agentctl.present import Curve, Fact, Figure, Section, Table, Value

Z95 = 1.96  # of a normal distribution: 95 % within
MOST_ROWS = 4  # of the remaining-length table, in the figure


def label_sections(found: Predictions) -> tuple[Section, ...]:
    return _accuracy(found), _length(found), _remaining(found)


def _accuracy(found: Predictions) -> Section:
    report = found.report
    told = report["accuracy"]
    ground, overall = told["pairs_by_ground"], told["overall"]
    if overall is None:
        means = count(report["labels"]["task_means"], "mean")
        sentence = f"{means} of tasks say how well models answer; there are no labels that could check them."
        return Section("accuracy", "How well each model answers", sentence, warnings=_warnings(report))
    rows = [(name, *_accuracy_cells(one), one["weight"]) for name, one in told["by_model"].items()]
    base = overall["task_mean_rmse"] ** 2
    head = (
        *(("model", ""), ("labels", "count"), ("mean score", ""), ("bias", ""), ("RMSE", "")),
        *(("RMSE of task means", ""), ("calibration error", ""), ("weight of the request", "")),
    )
    by_task = tuple((one["task"], one["model"], *_accuracy_cells(one)) for one in told["by_task_and_model"])
    facts = (
        Fact("labels", overall["n"], "count", f"in {count(overall['sessions'], 'session')}"),
        Fact("squared error saved", overall["squared_error_saved"] / base if base else None, "ratio",
             "against the mean of the task on the model; 0: the request says nothing more"),
        Fact("pairs with a label of their task", ground["labels"], "count"),
        Fact("pairs with its mean alone", ground["task mean"], "count"),
        Fact("pairs with neither", ground["none"], "count", "a router cannot choose there"),
    )  # fmt: skip
    return Section(
        "accuracy",
        "How well each model answers",
        _gain(overall),
        facts=facts,
        tables=(
            Table(head, tuple(rows), title="On sessions left out"),  # type: ignore[arg-type]
            Table((("task", ""), *head[:-1]), by_task, title="By task and model"),  # type: ignore[arg-type]
        ),
        figures=(_reliability(told["by_model"]),),
        assumptions=(
            f"whole sessions are left out, a part of {report['folds']} at a time; each request is predicted "
            "from others",
            "a prediction is the mean score of the task on the model, moved by " + _features(report)
            + " as far as sessions left out bear that out",
        ),
        warnings=_warnings(report),
    )  # fmt: skip


def _gain(overall: dict[str, Any]) -> str:
    saved, error = overall["squared_error_saved"], overall["squared_error_saved_error"]
    labels = f"Of {count(overall['n'], 'label')} on sessions left out"
    base = overall["task_mean_rmse"] ** 2
    if error is None or not saved > Z95 * error:
        return f"{labels}, no request says more about its score than its task does, as far as we can see."
    low, high = (percent((saved + sign * Z95 * error) / base) for sign in (-1, 1))
    return (
        f"{labels}, predictions save {percent(saved / base)} (95 % interval {low} to {high}) of the squared "
        f"error of the means of tasks; RMSE {number(overall['rmse'])}."
    )


def _accuracy_cells(one: dict[str, Any]) -> tuple[Value, ...]:
    names = ("mean_score", "bias", "rmse", "task_mean_rmse", "calibration_error")
    return (one["n"], *(one[name] for name in names))


def _features(report: dict[str, Any]) -> str:
    words = {"prompt_tokens": "prompt length", "turn_index": "turn"}
    return ", ".join(words.get(name, name) for name in report["features"])


def _warnings(report: dict[str, Any]) -> tuple[str, ...]:
    told = []
    labels, tokens = report["labels"], report["tokens_from_log"]
    if report["accuracy"]["pairs_by_ground"]["none"]:
        n = report["accuracy"]["pairs_by_ground"]["none"]
        told.append(
            f"{count(n, 'pair')} of request and model have neither a label of their task nor its mean: "
            "their accuracy is unknown; rows with task, model and score give it"
        )
    unscored = {model: n for model, n in labels["requests_unscored_by_model"].items() if n}
    if unscored and labels["scored_pairs"]:
        names = ", ".join(f"{model} {n:,}" for model, n in unscored.items())
        told.append(f"requests with a score on another model and none on this: {names}")
    if labels["requests_not_in_log"]:
        told.append(f"{count(labels['requests_not_in_log'], 'request')} of the labels are not in the log")
    if report["requests_without_task"] and report["tasks"]:
        told.append(f"{count(report['requests_without_task'], 'request')} without a task in the labels")
    if tokens["output_pairs"]:
        told.append(
            f"of {count(tokens['output_pairs'], 'pair')} the answer's length is that of whichever model "
            "served it: a column output_tokens says how long it is on this model"
        )
    return tuple(told)


def _reliability(by_model: dict[str, Any]) -> Figure:
    curves = [Curve("as predicted", (0.0, 1.0), (0.0, 1.0), colour=7)]
    for place, (model, one) in enumerate(by_model.items()):
        bins = one["reliability"]
        errors = [(b["scored_error"] or 0.0) * Z95 for b in bins]
        y = tuple(b["scored"] for b in bins)
        curves.append(
            Curve(
                model,
                tuple(b["predicted"] for b in bins),
                y,
                shape="points",
                low=tuple(v - e for v, e in zip(y, errors, strict=True)),
                high=tuple(v + e for v, e in zip(y, errors, strict=True)),
                colour=place,
            )
        )
    return Figure(
        name="calibrate-labels-reliability",
        question="Do requests score what was predicted of them?",
        x_label="predicted score",
        y_label="mean score of those requests",
        curves=tuple(curves),
        conclusion="Points on the line: a predicted 0.7 is 0.7 on average. Points side by side: the "
        "predictor does not tell requests apart. Bars are 95 % intervals over sessions; one in twenty "
        "misses the line by chance.",
    )


def _length(found: Predictions) -> Section:
    told = found.report["output_length"]
    overall, high = told["overall"], f"{100 * told['high']:g} %"
    error = overall["high_coverage_error"]
    spread = "" if error is None else f" (standard error {percent(error)})"
    less = 1 - overall["high_pinball_tokens"] / overall["plain_high_pinball_tokens"]
    loss = f"{percent(abs(less))} {'below' if less > 0 else 'above'} that of the task's own quantile"
    sentence = (
        f"The {high} quantile holds {percent(overall['high_coverage'])} of the answers of sessions left "
        f"out{spread}, its pinball loss is {loss}."
    )
    head = (
        *(("answers", "count"), ("mean", "tokens"), ("bias of the mean", "tokens")),
        *(("within median", "ratio"), (f"within {high} quantile", "ratio"), ("pinball loss", "tokens")),
        ("of the task's quantile", "tokens"),
    )
    names = ("n", "mean_tokens", "mean_bias_tokens", "median_coverage", "high_coverage",
             "high_pinball_tokens", "plain_high_pinball_tokens")  # fmt: skip
    rows = tuple((name, *(one[k] for k in names)) for name, one in told["by_model"].items())
    by_task = tuple(
        (one["task"], one["model"], *(one[k] for k in names)) for one in told["by_task_and_model"]
    )
    factors = ", ".join(f"{name} {one['high_factor']:.3g}" for name, one in told["by_model"].items())
    return Section(
        "output-length",
        "How long answers get",
        sentence,
        tables=(
            Table((("model", ""), *head), rows, title="On sessions left out"),  # type: ignore[arg-type]
            Table((("task", ""), ("model", ""), *head), by_task, title="By task and model"),  # type: ignore[arg-type]
        ),
        assumptions=(
            "quantiles are moved by what they missed in sessions left out (conformal): the high one by a "
            f"factor of {factors}",
            "known before an answer: " + _features(found.report) + ", the session's earlier answers",
        ),
    )


def _remaining(found: Predictions) -> Section:
    told, table = found.report["remaining"], found.remaining.arrays
    if not told["n"]:
        sentence = "No answer outlived its predicted median."
    else:
        sentence = (
            f"{percent(told['median_coverage'])} of the {count(told['n'], 'answer')} that outlived their "
            "predicted median ended within what the table then said was left (50.0 % would be right)."
        )
    rows = range(0, table.predicted.size, max(1, table.predicted.size // MOST_ROWS))
    curves = []
    for place, row in enumerate(rows):
        reach = int((found.remaining.count[row] >= 20).sum())
        name = f"predicted {number(table.predicted[row])} tokens or more"
        x, y = table.emitted[:reach], table.tokens[row, :reach]
        curves.append(Curve(name, tuple(x.tolist()), tuple(y.tolist()), colour=place))
    figure = Figure(
        name="calibrate-labels-remaining",
        question="How much is left of an answer that has got so far?",
        x_label="tokens emitted",
        y_label="tokens left, median",
        curves=tuple(curves),
        conclusion="A falling line: answers end near their prediction. A flat or rising line: those that "
        "outlived it are of another kind, and go on. Cells of fewer than 20 answers are not drawn.",
        x_unit="tokens",
        y_unit="tokens",
    )
    return Section("remaining", "What is left of an answer that outlives its prediction", sentence,
                   figures=(figure,))  # fmt: skip
