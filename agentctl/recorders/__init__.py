"""What runs inside an inference engine and writes one JSON line a step: input of `agentctl calibrate steps`.

They import nothing heavy and nothing of the engine until they are used in it.
"""
