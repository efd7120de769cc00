# Every target works on a fresh machine with Python 3.11 or newer: it first creates .venv and installs the project
# into it, and reinstalls when pyproject.toml has changed.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
ARGS ?=

# one thread per process: results are reproducible and parallel processes do not compete for cores
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup demo zoo claims test pytest test-long lint typecheck format docs bench gpu-check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       5 bundled encoders x 5 strategies x 3 synthetic tasks, then the leaderboard (about 4 minutes)"
	@echo "make test       lint, types and tests (ARGS='tests/leaderboard -k md' selects tests)"
	@echo "make pytest     the tests alone"
	@echo "make test-long  the tests marked long: kill tests, soak tests, claims"
	@echo "make docs       check the documentation and build it into site/"
	@echo "make zoo        pretrain the bundled encoders again (about 20 minutes on 2 cores)"
	@echo "make claims     test claims of the literature in the mini world: 5 seeds, about 30 minutes on 2 cores"
	@echo "make format     fix formatting and import order"
	@echo "make lint | typecheck | bench | gpu-check | setup | clean"

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required: make PYTHON=python3.11 ...")'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "Installing the project and its dependencies into $(VENV); this takes several minutes if torch must be downloaded"
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(STAMP)
	@echo "Ready: $(VENV)/bin/harness --help, or make demo (about 4 minutes on 2 cores)"

demo: $(STAMP)
	@echo "75 cells (5 encoders x 5 strategies x 3 tasks), two at a time: about 4 minutes on 2 cores, then the leaderboard"
	@$(VENV)/bin/harness -m experiment=mini $(ARGS); code=$$?; \
	  $(VENV)/bin/harness leaderboard results/mini && \
	  $(VENV)/bin/harness leaderboard results/mini --output results/mini/report.html && \
	  echo && echo "HTML report: results/mini/report.html" && \
	  echo "Records, predictions and logs: results/mini. Leaderboard: harness leaderboard results/mini" && exit $$code

zoo: $(STAMP)
	$(PY) -m harness_tasks.mini.zoo $(ARGS)

claims: $(STAMP)
	$(PY) -m benchmarks.claims $(ARGS)

# two processes, each test file in one of them; make test WORKERS= runs all tests in one process
WORKERS ?= -n 2 --dist loadfile
test: lint typecheck pytest

pytest: $(STAMP)
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

docs: $(STAMP)
	@$(PY) -c 'import mkdocs' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(PY) -m mkdocs build --strict

bench: $(STAMP)
	$(PY) -m benchmarks.bench $(ARGS)

gpu-check: $(STAMP)
	$(PY) -m benchmarks.gpu_check

clean:
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis results/mini
