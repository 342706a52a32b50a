"""What an engine adds to a run: 2,000 runs that do nothing, and the same result from each engine.

    python benchmarks/engines.py [--items 2000] [--workers 2]

Wall time per item, start of the engine apart. Bar: 50 ms per item on Ray.
"""

from __future__ import annotations

import argparse
import time

from processes import machine

from agentctl.engines import engine_of


def nothing(n: int) -> int:
    return n


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    print(machine())
    for name in ("serial", "processes", "ray"):
        begin = time.perf_counter()
        engine = engine_of(name, None if name == "serial" else args.workers)
        list(engine.map(nothing, range(2)))
        started = time.perf_counter()
        found = sorted(engine.map(nothing, range(args.items)))
        took = time.perf_counter() - started
        assert found == [(n, n) for n in range(args.items)]
        engine.close()
        print(f"{name:10} start {started - begin:6.2f} s, {1e3 * took / args.items:8.3f} ms per item")


if __name__ == "__main__":
    main()
