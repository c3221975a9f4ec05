# `make demo` runs the main job; `make test` sets up and passes everything; see README.md.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

.PHONY: demo record docs lab test test-slow lint clean

demo: $(VENV)/.ready
	$(BIN)/python -m jupyter_sandbox.cli.demo

record: $(VENV)/.ready
	$(BIN)/python scripts/record.py

docs: $(VENV)/.ready
	$(BIN)/python scripts/http_docs.py

lab: $(VENV)/.ready
	$(BIN)/pip install --quiet --editable '.[lab]'
	$(BIN)/jupyter lab --ServerApp.root_dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.ready
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
