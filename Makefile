# Everything here does its own set-up: Python 3.11 and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
STAMP  := $(VENV)/.installed
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test lint bench chaos soak clean setup
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[service,test,lint]'
	touch $@

setup: $(STAMP) ## make the virtual environment and fetch the embedded broker
	$(BIN)/python -m dalsegno.ops.embedded.prepare

demo: setup ## seven services, 200 applications, engines and workers killed on a real Kafka
	$(BIN)/python -m examples.risk_control $(ARGS)

test: setup lint ## every test that needs no Docker; coverage of all but the simulation
	$(PYTEST) -m 'not docker and not kafka' -n 2 --dist worksteal tests/simulation tests/property $(ARGS)
	$(PYTEST) -m 'not docker and not kafka' -n 2 --dist worksteal --ignore tests/simulation \
		--ignore tests/property --cov --cov-report=term:skip-covered $(ARGS)
	$(PYTEST) -m 'kafka and not docker' -n 2 --dist loadfile $(ARGS)

lint: $(STAMP) ## ruff, mypy, pyright, import-linter, schema compatibility
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/dalsegno schemas check

bench: setup ## print the benchmark tables
	$(BIN)/python -m benchmarks $(ARGS)

chaos: setup ## three brokers in Docker, faults, the same oracle
	$(BIN)/python -m pytest -m docker tests/chaos $(ARGS)

soak: $(STAMP) ## endless simulation; prints each seed
	$(BIN)/python -m tests.simulation.soak $(ARGS)

clean: ## remove what the targets above made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis .coverage* htmlcov
