"""The task mix of the latency-aware routing paper: four tasks, three models, scores and lengths per model.

The paper (SFS, arXiv 2607.18253) publishes the tasks, their equal shares, the mean score that a judge gave
each model, prices and engine limits. It does not publish lengths: those here are ASSUMED, from what is known
of the four data sets, and so is all that makes scores of single requests. Nothing was tuned against a
simulation. A change of any number is a new VERSION.
"""

from __future__ import annotations

from typing import NamedTuple

from agentctl.synth.model import Lognormal

VERSION = 1
NAME = f"model-routing/{VERSION}"
REQUESTS = 16_000  # of one point of the paper
PER_MIN = 360.0  # 6 requests per second, the lowest rate that it shows for every arrival process
MOST_OUTPUT = 8_192  # tokens, the paper's limit
LONGEST_PROMPT = 120_000  # tokens; with the longest output it fits into 131,072

MODELS = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-32B")  # one tokenizer: prompts are equally long
MIDDLE = 1  # whose outputs the dataset's own column has

WARNINGS = (
    "prompt and output lengths are assumed, task by task and model by model: the paper does not publish them",
    "scores are drawn around the judge's published means; how they spread, and how far a request is hard for "
    "all models, is assumed",
    f"output_tokens are those of {MODELS[MIDDLE]}; those of the other models are in the table of labels",
)

# Shares of what requests have in common, as correlations of normal scores within a task. All are guesses.
SHARED_DIFFICULTY = 0.5  # between the scores of two models for one request
LENGTH_DIFFICULTY = 0.3  # between a prompt's length and how hard it is: what a predictor can learn
SHARED_LENGTH = 0.6  # between the outputs of two models for one request
SCORE_SPREAD = 2.0  # parameters of the Beta distribution of scores add up to this: 2 and mean 0.5 is uniform


class Task(NamedTuple):
    """`score` and `output` are by model, in the order of MODELS."""

    name: str
    prompt: Lognormal  # tokens, the chat template's 10 to 20 included
    output: tuple[Lognormal, ...]  # tokens
    score: tuple[float, ...]  # mean, published
    source: str  # of the lengths: what is known, and what was made of it


def _outputs(sigma: float, *medians: float) -> tuple[Lognormal, ...]:
    return tuple(Lognormal(median, sigma, 1, MOST_OUTPUT) for median in medians)


TASKS = (
    Task(
        "alpaca",
        Lognormal(45, 0.45, 18, 2_000),
        _outputs(0.9, 180, 220, 240),
        (0.535, 0.827, 0.889),
        "instructions of one or two sentences, four in ten with an input (Alpaca, 52,000 instructions); "
        "chat models answer longer than the reference of about 45 words: a guess",
    ),
    Task(
        "govreport",
        Lognormal(9_000, 0.55, 800, LONGEST_PROMPT),
        _outputs(0.35, 450, 600, 650),
        (0.290, 0.866, 0.959),
        "reports of 7,900 words on average, summaries of 490 (SCROLLS, arXiv 2201.03533), 1.3 tokens a word; "
        "that a smaller model writes less is a guess",
    ),
    Task(
        "hotpotqa",
        Lognormal(1_350, 0.28, 150, 6_000),
        _outputs(1.0, 40, 35, 35),
        (0.410, 0.883, 0.927),
        "ten Wikipedia paragraphs and a question (distractor setting, arXiv 1809.09600), about 900 words; "
        "answers of a few words, here in a sentence or two: a guess",
    ),
    Task(
        "writingprompts",
        Lognormal(50, 0.45, 18, 1_000),
        _outputs(0.5, 600, 800, 900),
        (0.177, 0.575, 0.807),
        "prompts of 28 words and stories of 735 on average (arXiv 1805.04833); that models write as "
        "much as people is a guess",
    ),
)
