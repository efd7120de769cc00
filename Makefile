# Everything here works on a fresh machine with Python 3.11 or newer: each target first makes .venv and installs the
# project into it when pyproject.toml has changed since.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
ARGS ?=

# one thread a process, so that results repeat and two cores are not fought over
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup demo zoo claims test test-long lint typecheck format bench gpu-check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       five bundled encoders x five strategies x three made-up tasks, then the leaderboard"
	@echo "make test       lint, types and tests (ARGS='tests/leaderboard/test_leaderboard.py -k md' runs a part of the tests)"
	@echo "make test-long  the tests marked long: kills, soaks, claims"
	@echo "make zoo        pretrain the bundled encoders anew (about 20 minutes on 2 cores)"
	@echo "make claims     what the literature says, looked for in the mini world: 5 seeds, about 30 minutes on 2 cores"
	@echo "make lint | typecheck | format | bench | gpu-check | setup | clean"

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "Installing the project and what it needs into $(VENV): several minutes where torch must be downloaded"
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(STAMP)
	@echo "Ready: $(VENV)/bin/harness --help, or make demo (about 4 minutes on 2 cores)"

demo: $(STAMP)
	@echo "75 cells (5 encoders x 5 strategies x 3 tasks), two at a time: about 4 minutes on 2 cores, then the leaderboard"
	@$(VENV)/bin/harness -m experiment=mini $(ARGS); code=$$?; \
	  $(VENV)/bin/harness leaderboard results/mini && \
	  $(VENV)/bin/harness leaderboard results/mini --output results/mini/report.html && \
	  echo && echo "The same as a page to open in a browser: results/mini/report.html" && \
	  echo "Records, predictions and logs: results/mini. Again: harness leaderboard results/mini" && exit $$code

zoo: $(STAMP)
	$(PY) -m harness_tasks.mini.zoo $(ARGS)

claims: $(STAMP)
	$(PY) -m benchmarks.claims $(ARGS)

# two at a time, a file's tests in one process; make test WORKERS= runs them one after the other
WORKERS ?= -n 2 --dist loadfile
test: lint typecheck
	$(PY) -m pytest $(WORKERS) $(ARGS)

test-long: $(STAMP)
	$(PY) -m pytest -m long $(ARGS)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

typecheck: $(STAMP)
	$(PY) -m mypy

format: $(STAMP)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(STAMP)
	$(PY) -m benchmarks.bench $(ARGS)

gpu-check: $(STAMP)
	$(PY) -m benchmarks.gpu_check

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis results/mini
