"""Made workloads: a frozen one fitted to published facts, and one from the statistics of a private trace.

    synthesise(agentic(), Path("agentic.trace"), seed=1)
    synthesise(statistics_of(open_trace(Path("day.trace"))), Path("like_day.trace"), seed=1)
    synthesise_labelled(Path("mix.trace"), seed=1)

A `Model` (model.py) says how sessions come, how long their turns are and what they share. `agentic.py` holds
the frozen numbers with their sources, `fit.py` takes them from a trace, `draw.py` and `plant.py` play them,
and `dataset.py` writes the trace. `model_routing.py` holds the numbers of a mix of tasks for several models,
`labelled.py` draws it with a score and an output length per model.
"""
