# Two commands are enough on a fresh machine: `make demo` and `make test`. Each sets up what it needs first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format vectors docs bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Install everything into .venv (runs by itself when needed)

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash scripts/setup.sh
	@touch $(READY)

demo: $(READY) ## Play the slothmail story
	@$(BIN)/python -m examples.demo

test: $(READY) ## Run every test; what is skipped is listed with the reason
	@$(BIN)/pytest

lint: $(READY) ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

vectors: $(READY) ## Write the test vectors anew
	@$(BIN)/python scripts/make_vectors.py
	@$(BIN)/python scripts/make_views.py

docs: $(READY) ## Write the reference pages that follow from the code
	@$(BIN)/python scripts/make_docs.py

bench: $(READY) ## Measure, as ratios to a baseline in the same run
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.rot

clean: ## Remove what setup and the tools made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis tests/*/*/node_modules bench/results src/*.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
