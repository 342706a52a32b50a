"""Measuring an engine from outside, through its OpenAI-compatible API: what to ask, and what was seen."""
