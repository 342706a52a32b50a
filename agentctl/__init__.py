"""agentctl: from the request logs of an LLM cluster for agents to a routing and capacity decision."""

__version__ = "0.1.0"
