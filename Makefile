# Everything runs in .venv, which is made on first use and brought up to date when the pinned versions change.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: help demo test test-long quick faults lint types contract format kernels bench papers java chromium clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: kernels ## joins a year of real flights in three streams on Spark, and checks the answer
	@bash scripts/java.sh || echo "Going on without Java: the demo runs in one process." >&2
	@$(BIN)/watersmeet demo

test: lint types contract kernels ## everything that has to be right before a change goes in
	@bash scripts/chromium.sh
	@bash scripts/java.sh
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup --durations 15 src lab tests </dev/null

# WATERSMEET_SEED=100000 checks other seeds.
test-long: kernels ## the generated tests at ten times the volume of `make test`
	WATERSMEET_VOLUME=$${WATERSMEET_VOLUME:-10} $(BIN)/pytest -n $(WORKERS) -o faulthandler_timeout=3600 \
		--dist loadgroup tests/properties tests/operators/window_join/test_state_between_batches.py tests/runtime/test_spread_aggregation.py \
		tests/spark/test_embedded_equals_spark.py </dev/null

quick: kernels ## the tests without the long property runs, Spark and the browser
	$(BIN)/pytest -x -n $(WORKERS) src lab tests --ignore tests/properties --ignore tests/dashboard --ignore tests/spark </dev/null

faults: kernels ## kills drivers, Java processes and workers on Spark, for many minutes
	WATERSMEET_FAULTS=1 $(BIN)/pytest -s -o faulthandler_timeout=7200 tests/spark/faults tests/spark/cluster </dev/null

lint: $(READY) ## style: ruff's rules and its layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	$(BIN)/mypy

contract: $(READY) ## which layer may import which
	$(BIN)/lint-imports --no-cache

format: $(READY) ## lays the code out and fixes what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Test workers that start together would otherwise all compile the same kernels.
kernels: $(READY) ## compiles the kernels into the cache
	@echo "Compiling the kernels; this takes a minute the first time"
	@$(BIN)/python -c 'import watersmeet; from watersmeet.kernels.compile import warm_up; warm_up()'

bench: kernels ## measures this system beside its peers and writes docs/benchmarks; RESUME=--resume goes on with what is missing
	$(BIN)/watersmeet bench all --save docs/benchmarks $(RESUME)

papers: kernels ## reproduces the papers' tables and figures and writes docs/papers anew
	$(BIN)/watersmeet paper all --out docs/papers

chromium: ## checks for the Chromium that the dashboard's tests need, installs one where that is allowed
	@bash scripts/chromium.sh

java: ## checks for the Java that Spark needs, installs one where that is allowed
	@bash scripts/java.sh

clean: ## removes what was made, but for .venv
	rm -rf build dist lab/dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis artefacts
	find src lab tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## removes .venv as well
	rm -rf $(VENV)

$(READY): requirements.txt requirements-dev.txt pyproject.toml lab/pyproject.toml scripts/python.sh
	@python=$$(PYTHON="$(PYTHON)" bash scripts/python.sh); \
	if ! [ -x $(BIN)/python ] || ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "Making $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV) || { echo "watersmeet: $$python cannot make a virtual environment; install its venv module" >&2; exit 1; }; \
	fi
	@echo "Installing the pinned packages; this takes a minute the first time"
	@$(BIN)/python -m pip install -q -r requirements-dev.txt
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e . -e ./lab
	@touch $@
