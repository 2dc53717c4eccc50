# Everything runs in .venv, which `make` sets up by itself and sets up again only when
# pyproject.toml or constraints.txt say something new, or the checkout has moved.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
MADE := .venv/.made-$(shell pwd | sha256sum | cut -c1-12)
READY := .venv/.ready-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-12)
PYTEST := $(BIN)/python -m pytest -n 2

# What a person's pip is told must not send the packages anywhere but into .venv; where it gets them from holds for uv too.
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_CONSTRAINT PIP_REQUIREMENT PYTHONPATH VIRTUAL_ENV UV_PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_SYSTEM_CERTS := 1
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
INDEX = $(or $(PIP_INDEX_URL),$(shell $(BIN)/python -m pip config list | sed -n "s/^[a-z]*\.index-url='\(.*\)'/\1/p" | head -1))
UV = $(if $(INDEX),UV_DEFAULT_INDEX='$(INDEX)') $(BIN)/python -m uv

.PHONY: help env demo test lint format bench constraints wheel-check clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(READY)  ## one Session through LangGraph, OpenAI Agents, AutoGen and MCP, offline; writes demo-out/
	@$(BIN)/python examples/mixed_stack.py

test: lint  ## every check, then every test (more pytest options: make test ARGS="-k merge")
	@echo "== pytest"
	@$(PYTEST) $(ARGS)

lint: $(READY)  ## ruff, import-linter, pyright
	@echo "== ruff"
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@echo "== import-linter"
	@report=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$report"; exit 1; }
	@echo "== pyright"
	@$(BIN)/pyright

format: $(READY)  ## let ruff sort imports and format
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: $(READY)  ## the figures of the house plan, each beside its peer
	@$(BIN)/python -m benchmarks $(ARGS)

constraints: $(MADE)  ## pin again what pyproject.toml asks for (ARGS=--upgrade for newer versions)
	@$(UV) pip compile pyproject.toml --all-extras --group dev --python-version 3.11 \
	  --no-header --no-annotate --no-emit-index-url --quiet --output-file constraints.txt $(ARGS)

wheel-check: $(READY)  ## build the wheel, install it without any framework, import and ask the doctor
	@rm -rf build/wheel && mkdir -p build/wheel
	@$(UV) build --quiet --wheel --out-dir build/wheel
	@$(PYTHON) -m venv build/wheel/env
	@$(UV) pip install --quiet --python build/wheel/env/bin/python -c constraints.txt build/wheel/*.whl
	@cd build/wheel && env/bin/python -I ../../tests/check_wheel.py
	@cd build/wheel && env/bin/rath-bridge --help >/dev/null && env/bin/rath-bridge doctor
	@echo "wheel: ok"

env: $(READY)  ## only set up .venv
	@:

clean:  ## remove what was built and made here, .venv too
	@rm -rf .venv build dist demo-out .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(MADE):
	@echo "Making .venv with $(PYTHON) ..."
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -qq -c constraints.txt uv
	@touch $@

$(READY): | $(MADE)
	@echo "Installing into .venv ..."
	@$(UV) pip install --quiet --python $(BIN)/python -c constraints.txt -e ".[all]" --group dev
	@rm -f .venv/.ready-* && touch $@
