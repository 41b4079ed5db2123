# Everything here needs Python 3.11 or newer, bash and make; `make` alone lists what there is.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first interpreter that is new enough; override with `make install PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
# In CI the demo stops by itself instead of leaving the UI running.
DEMO_ARGS ?= $(if $(filter true 1,$(CI)),--no-ui)
LOCKED := --all-extras --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url

VERSITYGW := .stack/bin/versitygw
# The first release whose conditional put is atomic.
VERSITYGW_VERSION := v1.8.0

.PHONY: help install demo check test test-property test-interop test-stack lint types bench lock clean

##@ Start here
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z][a-z-]*:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv with the pinned packages (any other target does it too)

demo: $(STAMP) ## a night of maintenance on a generated graph, in Airflow, with the UI left open
	@$(BIN)/python -m omnigraph_airflow.demo $(DEMO_ARGS)

##@ Work on it
check: lint types ## lint, types and the fast tests (under two minutes)
	@$(BIN)/python -m pytest tests -m "not spark and not airflow and not crash and not interop and not s3 and not slow" -n $(JOBS)

test: lint types ## lint, types and the whole test suite; what CI runs
	@$(BIN)/python -m pytest tests -n $(JOBS) --dist loadgroup

test-property: $(STAMP) ## 2,000 random histories against a model (20 minutes or so)
	@OMNIGRAPH_PROPERTY_PROFILE=nightly $(BIN)/python -m pytest tests/property -n $(JOBS) --dist loadgroup

test-interop: $(STAMP) ## with the real engine: OMNIGRAPH_BIN_STAMP3 and OMNIGRAPH_BIN_STAMP6 name it
	@$(BIN)/python -m pytest tests/interop -m interop

test-stack: $(STAMP) $(VERSITYGW) ## the S3 tests on a real store, versitygw (needs Go, once)
	@OMNIGRAPH_TEST_S3=versitygw $(BIN)/python -m pytest tests -m s3 -n $(JOBS) --dist loadgroup

lint: $(STAMP) ## ruff: style, complexity, forbidden imports
	@$(BIN)/ruff check .

types: $(STAMP) ## mypy, strict, on omnigraph_ops
	@$(BIN)/mypy

bench: $(STAMP) ## the benchmarks behind the performance claims
	@for file in bench/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

##@ Housekeeping
lock: $(STAMP) ## pin requirements.txt anew from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/python -m uv pip compile pyproject.toml $(LOCKED) --upgrade --quiet -o requirements.txt
	@echo "requirements.txt: $$(wc -l < requirements.txt) packages"

clean: ## remove .venv, the demo's state and caches
	@rm -rf $(VENV) .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VERSITYGW):
	@command -v go >/dev/null || { echo "Go was not found; install it from https://go.dev/dl and run again" >&2; exit 1; }
	@echo "versitygw $(VERSITYGW_VERSION): a few minutes the first time"
	@GOBIN="$(CURDIR)/$(@D)" go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)

$(STAMP): requirements.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer was not found; name one: make install PYTHON=..." >&2; exit 1; fi
	@echo "[1/3] $(VENV) with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "[2/3] $$(wc -l < requirements.txt) pinned packages: a few minutes and 1 GB the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@echo "[3/3] this project, editable"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
