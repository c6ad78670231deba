# All commands run in .venv, which is created on first use and updated when the pinned versions change.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
RUNNABLE := $(VENV)/.runnable
READY := $(VENV)/.ready
WORKERS ?= 2
# The tests of a file run in one process, because they share what is slow to set up.
BY_FILE := --dist loadfile --no-loadscope-reorder
# Files whose tests check a volume of generated cases (tests/volume.py).
GENERATED := tests/properties tests/simulator tests/kernels/test_trees.py tests/operators/test_expressions_against_oracle.py \
	tests/operators/aggregate/test_emitted_groups.py tests/operators/window_join/test_state_between_batches.py \
	tests/operators/window_join/test_tactics.py tests/operators/window_join/test_tree.py tests/runtime/test_allocation.py tests/runtime/test_bucketed_aggregation.py \
	tests/operators/window_join/test_live_indexes.py tests/planner/test_controller.py tests/runtime/test_damaged_checkpoints.py \
	tests/runtime/test_shown_plan_runs.py \
	tests/spark/test_bench.py tests/spark/test_embedded_equals_spark.py tests/spark/test_spread_aggregation.py \
	tests/spark/test_streaming.py

# Tests that also run on the oldest version of PySpark with every `make test`: a finite query, and a stream with a restart.
SHORT_PASS := tests/spark/test_versions.py::test_private_attributes_exist \
	"tests/spark/test_versions.py::test_finite_tables_give_the_rows_of_the_embedded_engine[aggregation]" \
	"tests/spark/test_versions.py::test_directories_give_the_same_rows_over_a_restart[join of two]"

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Images of Python set this variable. Without bytecode on disk, each of the many Python processes of the demo, the tests
# and Spark would compile pandas, Numba and PySpark again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-long test-oldest test-spark quick coverage faults lint types contract format kernels bench readme papers transcripts bless java kafka chromium clean distclean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNNABLE) ## replay a year of real flights as three streams on Spark, and check the result
	@bash scripts/java.sh || echo "Continuing without Java: the demo runs in one process." >&2
	@$(BIN)/watersmeet demo

test: lint types contract kernels ## run all checks and tests; required before a commit
	@bash scripts/chromium.sh
	@bash scripts/java.sh
	@bash scripts/kafka.sh
	@$(BIN)/python -m tests.spark.class_archive
	$(BIN)/pytest -n $(WORKERS) $(BY_FILE) --durations 15 src lab tests </dev/null
	WATERSMEET_SKIP_MISSING=1 bash scripts/test_spark.sh 4.0 --junit-xml build/short-pass.xml $(SHORT_PASS)

# WATERSMEET_SEED=100000 checks other seeds.
test-long: kernels ## run the generated tests at twenty times the volume of `make test`, and install the wheel in an empty environment
	WATERSMEET_VOLUME=$${WATERSMEET_VOLUME:-20} $(BIN)/pytest -n $(WORKERS) -o faulthandler_timeout=3600 \
		$(BY_FILE) $(GENERATED) </dev/null
	$(BIN)/python scripts/newcomer.py
	WATERSMEET_INSTALL=1 $(BIN)/pytest -s tests/packaging/test_wheel.py </dev/null

# It uses environments of its own in build/oldest. ONLY=core or ONLY=spark runs one of the two.
test-oldest: ## run the quick tests with the oldest supported versions of all dependencies
	PYTHON="$(PYTHON)" WORKERS=$(WORKERS) bash scripts/test_oldest.sh $(ONLY)

# It uses an environment of its own in build/spark-versions. ONLY=FILE runs one file.
test-spark: ## run the Spark suite on another version of PySpark: make test-spark VERSION=4.1
	bash scripts/test_spark.sh $(or $(VERSION),4.0) $(ONLY)

quick: kernels ## run the tests without the long property tests, the simulator, Spark and the browser
	$(BIN)/pytest -x -n $(WORKERS) src lab tests --ignore tests/properties --ignore tests/simulator --ignore tests/dashboard --ignore tests/spark </dev/null

coverage: kernels ## run the quick tests and report which lines of the package they reach
	$(BIN)/pytest -n $(WORKERS) --cov --cov-report= src lab tests --ignore tests/properties --ignore tests/simulator --ignore tests/dashboard --ignore tests/spark </dev/null
	$(BIN)/coverage report --skip-covered --sort=cover

faults: kernels ## kill embedded jobs, and drivers, Java processes, workers and executors on Spark, for many minutes
	WATERSMEET_FAULTS=1 $(BIN)/pytest -s -o faulthandler_timeout=7200 tests/runtime/test_killed_jobs.py tests/spark/faults \
		tests/spark/cluster </dev/null

lint: $(READY) ## check the style with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell src lab tests docs scripts *.md Makefile pyproject.toml
	$(BIN)/python scripts/plain_english.py

types: $(READY) ## check the types with mypy --strict
	$(BIN)/mypy

contract: $(READY) ## check that each layer imports only lower layers
	$(BIN)/lint-imports --no-cache

format: $(READY) ## format the code and fix style problems
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Otherwise, test workers that start at the same time would all compile the same kernels.
kernels: $(READY) ## compile the kernels into the cache
	@echo "Compiling the kernels; this takes a minute the first time"
	@$(BIN)/python -c 'import watersmeet.api; from watersmeet.kernels.compile import warm_up; warm_up()'

bench: kernels ## measure against peers and write docs/benchmarks; RESUME=--resume continues a run
	$(BIN)/watersmeet bench all --save docs/benchmarks $(RESUME)

readme: $(READY) ## write the table of measured figures in the README from docs/benchmarks
	$(BIN)/python -m watersmeet_lab.bench.readme_table README.md docs/benchmarks

papers: kernels ## reproduce the papers' tables and figures and write docs/papers
	$(BIN)/watersmeet paper all --out docs/papers

transcripts: $(READY) ## run the commands of docs/transcripts and write what they print
	WATERSMEET_TRANSCRIPTS=write $(BIN)/pytest tests/docs/test_transcripts.py </dev/null

bless: $(READY) ## plan the queries of tests/golden/plans again and write their plans and explanations
	$(BIN)/python -m tests.golden.golden_plans

chromium: ## find Chromium for the dashboard tests, or install it if allowed
	@bash scripts/chromium.sh

java: ## find Java for Spark, or install it if allowed
	@bash scripts/java.sh

kafka: ## fetch a Kafka broker and its connector for the tests, if Maven and its registry are there
	@bash scripts/kafka.sh

clean: ## remove generated files, except .venv
	rm -rf build dist lab/dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis artefacts
	find src lab tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove generated files and .venv
	rm -rf $(VENV)

# The demo needs no development tools. Bytecode is compiled on first import: pip would compile all of it.
$(RUNNABLE): requirements.txt pyproject.toml scripts/python.sh
	@python=$$(PYTHON="$(PYTHON)" bash scripts/python.sh); \
	if ! [ -x $(BIN)/python ] || ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "Creating $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV) || { echo "watersmeet: $$python cannot create a virtual environment; install its venv module" >&2; exit 1; }; \
	fi
	@echo "Installing the pinned packages; this takes a minute the first time"
	@grep -E '^(editables|hatchling|pathspec|pluggy|trove-classifiers)==' requirements-dev.txt | \
		$(BIN)/python -m pip install -q --no-compile -r requirements.txt -r /dev/stdin
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(RUNNABLE) requirements-dev.txt lab/pyproject.toml
	@echo "Installing the pinned development tools"
	@$(BIN)/python -m pip install -q -r requirements-dev.txt
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e ./lab
	@touch $@
