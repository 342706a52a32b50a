"""The command line: one file (or package of sources) per command, a skin over the library functions."""

COMMANDS = {
    "ingest": "Turn request logs into a trace dataset",
    "analyze": "Say what is in a trace: reuse, locality, phases, load",
    "calibrate": "Say how fast one engine is, from what was measured",
    "validate": "Say how far the simulator is from what a log measured",
    "simulate": "Replay a trace on a cluster under one routing policy",
    "recommend": "Compare policies and cluster sizes, and name one",
    "policies": "List the routing policies, explain one, or check your own",
    "report": "Render a run folder again",
    "export": "Write an anonymised trace that can be shared",
    "study": "Run again what a paper measured",
    "synth": "Make a workload that can be shared",
}
