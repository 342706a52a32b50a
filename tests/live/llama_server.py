"""llama.cpp's server, of the wheel xllamacpp: `llama_server.py MODEL.gguf PORT CORE`, until it is ended."""

import os
import signal
import sys

from xllamacpp import CommonParams, Server

SLOTS = 16
CONTEXT = 4608  # tokens of each slot

if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[3])})
    params = CommonParams()
    params.model.path = sys.argv[1]
    params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[2])
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * CONTEXT
    params.n_batch = params.n_ubatch = 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.kv_unified = False  # or a decode would read every slot's cells
    params.endpoint_metrics = True
    params.warmup = True
    server = Server(params)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)
