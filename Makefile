# Two commands are enough on a fresh machine: `make demo` and `make test`. Each sets up what it needs first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Three for each core, up to six: tests often wait, most of all for processes that they have started.
WORKERS := $(shell expr $$(nproc) \* 3)
# Else each process of the tests, and there are hundreds, would compile all its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-all simulate simulate-hostile restores lint format vectors docs site bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Install everything into .venv (runs by itself when needed)

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $(READY)

demo: $(READY) ## Play the slothmail story: three nodes, one pipeline
	@$(BIN)/python -m examples.demo

up: $(READY) ## The same, left running, with pages to look at
	@$(BIN)/python -m examples.demo --stay

test: $(READY) ## Prove every rule (ten minutes on two cores); what is skipped is listed with the reason
	@$(BIN)/python scripts/archive_spark.py
	@$(BIN)/pytest -n $(WORKERS) --maxprocesses 6 --dist loadscope --no-loadscope-reorder

test-all: export INKGROVE_TEST_ALL = 1
test-all: test ## More seeds, kills and inputs, and everything on both databases (an hour or more)

simulate: $(READY) ## Let 20 nodes fail in 200 ways (hours); SEEDS=n for fewer
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),200) --log simulation.log

simulate-hostile: $(READY) ## Let hosts that keep keys of others forge in 200 ways; SEEDS=n for fewer
	@$(BIN)/python -m tests.simulation --hostile --seeds $(or $(SEEDS),200) --log simulation.log

restores: export INKGROVE_TEST_RESTORES ?= 20
restores: $(READY) ## Restore real nodes under load 20 times on each database (a quarter of an hour)
	@$(BIN)/pytest tests/federation/test_restores.py -s

lint: $(READY) ## Check style, imports and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

vectors: $(READY) ## Write the test vectors anew
	@$(BIN)/python scripts/make_vectors.py
	@$(BIN)/python scripts/make_views.py

docs: $(READY) ## Write the reference pages that follow from the code
	@$(BIN)/python scripts/make_docs.py

site: $(READY) ## Build the documentation as a site, in build/site
	@$(BIN)/mkdocs build --quiet --config-file mkdocs.yml && echo "open build/site/index.html"

bench: $(READY) ## Measure, as ratios to a baseline in the same run (SUITES="pipeline node" for some)
	@$(BIN)/python -m bench $(SUITES)
	@$(if $(SUITES),,$(BIN)/python -m bench.rot)

clean: ## Remove what setup and the tools made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis tests/*/*/node_modules bench/results build src/*.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
