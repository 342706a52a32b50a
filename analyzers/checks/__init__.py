"""Checks of a log, one function each: a Finding, or None when there is nothing to say."""
