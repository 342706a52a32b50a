"""Measuring an engine from inside its own process: designed batches, stepped one at a time."""
