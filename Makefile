# From a fresh clone with Python >= 3.11, make and a package index:
#
#   make demo    installs into .venv and ends with a decision about a real trace
#   make test    installs into .venv-test and runs linters, types and the test suite

PYTHON ?= python3
SOURCES := $(shell find agentctl analyzers estimators policies -type f -not -name '*.pyc')
# What the README shows: twenty minutes of real chats on 6 engines
DEMO := sample_traces/mooncake_20min.jsonl.gz --profile h100-qwen3-8b --engines 6 --replicates 20 \
	--policies least-loaded,lmetric,prefix-affine,round-robin,session-sticky,smetric \
	--slo "ttft < 2s + 62.5us*prompt_tokens @ 90%" --slo "tpot < 50ms @ 90%"

.PHONY: demo test clean

demo: .venv/installed
	@mkdir -p runs
	.venv/bin/agentctl recommend $(DEMO) -o runs/demo --force

test: .venv-test/installed
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy
	.venv-test/bin/python -m pytest -n 2

clean:
	rm -rf .venv .venv-test runs build dist

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
