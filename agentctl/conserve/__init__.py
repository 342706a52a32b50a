"""ConServe and its baselines as their paper ran them: a small simulator of its own ("paper mode").

Prefill once, move KV once, keep every later turn on one decoder: that is the system. How it was measured
leaves waiting out of the clocks; that is repeated here on purpose, beside what the simulator says.
Source: arXiv 2606.01839 and github.com/eicchen/conserve @ 4ab277d (Apache-2.0).
"""
