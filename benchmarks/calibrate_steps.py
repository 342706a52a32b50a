"""What `agentctl calibrate steps` reaches on measured engines: held-out errors by model and kind of step.

    python benchmarks/calibrate_steps.py LOG... [--layers 32] [--max-wait 0.02]

Every log (or folder of kernel tables) is fitted on its own with eq9, with the hinge without optional terms,
with a context slope of its own for mixed steps, and with the terms that held-out errors choose. Five folds by
block of time. The bars, on the logs in tests/data/calibrate: 8.0 % in process (--max-wait 0.02), 10.5 % over
HTTP (--max-wait 1), decodes 5 % on RTX PRO 6000 with b_context_mixed and without b_past, 7 % on H100.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from processes import machine

FITS: dict[str, tuple[str, list[str] | None]] = {
    "eq9": ("eq9", None),
    "hinge, base": ("hinge", []),
    "hinge, b_context_mixed": ("hinge", ["b_context_mixed"]),
    "hinge, chosen": ("hinge", None),
}


def main() -> None:
    from agentctl.errors import InputError
    from agentctl.estimators.batch_model import fit_batch_model
    from agentctl.estimators.step_logs import read_step_logs
    from agentctl.estimators.steps import KINDS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--max-wait", type=float, default=0.05)
    args = parser.parse_args()
    print(machine())
    for path in args.logs:
        log = read_step_logs([path], n_layers=args.layers, max_wait=args.max_wait)
        print(f"\n{path.name}: {len(log.steps):,} of {log.read:,} steps, {', '.join(log.formats)}")
        print(
            f"{'model':26} {'MAPE':>7} {'stalls too':>10} {'median':>7}",
            *(f"{kind:>13}" for kind in KINDS),
            "seconds",
        )
        for name, (model, terms) in FITS.items():
            begin = time.perf_counter()
            try:
                found = fit_batch_model(log.steps, model, terms)
            except InputError as error:
                print(f"{name:26} {error.message}")
                continue
            took = time.perf_counter() - begin
            held, whole = found.held_out, found.held_out_with_stalls
            kinds = [found.regions[kind].mape if kind in found.regions else float("nan") for kind in KINDS]
            print(
                f"{name:26} {held.mape:7.2%} {whole.mape:10.2%} {held.median_ape:7.2%}",
                *(f"{kind:13.2%}" for kind in kinds),
                f"{took:.2f}",
            )


if __name__ == "__main__":
    main()
