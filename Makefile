# Everything here needs Python 3.11 or newer, bash and make; `make` alone lists what there is.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# With it every process compiles the modules of this project anew, and pytest its tests.
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter that is new enough; override with `make install PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Many tests wait for a process that they started, so these are twice as many as a small machine has cores.
JOBS ?= 4
# mypy has one thread and, without its cache, takes a minute: the tests begin meanwhile. Any of them fails the target.
BESIDE := --jobs=2
# Where fast tests are; to import the others takes a tenth of the time.
INNER := tests/contract tests/docs tests/integration tests/unit
# In CI the demo stops by itself instead of leaving the UI running.
DEMO_ARGS ?= $(if $(filter true 1,$(CI)),--no-ui)
# Pinned as the packages are. It is told which index, certificates and proxy pip is configured with.
UV_VERSION := 0.13.9
UV := $(BIN)/python tools/uv.py
LOCKED := --all-extras --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url

# What `make test-stack` needs beside .venv; Go builds the first two.
VERSITYGW := .stack/bin/versitygw
COMPOSE_SPEC := .stack/bin/compose-spec
DRIVERS := $(VENV)/.drivers
COMPOSE_SPEC_VERSION := v2.16.2
# The first release whose conditional put is atomic.
VERSITYGW_VERSION := v1.8.0

# The package alone: it drives the Chromium of the system, so no browser is downloaded.
PLAYWRIGHT := playwright==1.65.2
PICTURES ?= artifacts/ui

.PHONY: help install demo check test tests-fast tests-all test-night test-property test-crash test-interop test-live test-stack test-ui lint types bench docs env up down lock clean

##@ Start here
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z][a-z-]*:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv with the pinned packages (any other target does it too)

demo: $(STAMP) ## a night of maintenance on a generated graph, in Airflow, with the UI left open
	@$(BIN)/python -m omnigraph_airflow.demo $(DEMO_ARGS)

##@ The stack of docker-compose.yaml
up: env ## Airflow, PostgreSQL, Spark and an S3 store with a graph in it, in containers
	@docker compose up --build --detach
	@echo "http://localhost:$$(sed -n 's/^AIRFLOW_PORT=//p' .env): user admin, password AIRFLOW_ADMIN_PASSWORD in .env"

down: ## stop the containers; what their volumes hold stays
	@docker compose down

env: ## .env, with a random secret for everything that has none
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer was not found; name one: make env PYTHON=..." >&2; exit 1; fi
	@$(PYTHON) stack/fill_env.py

##@ Work on it
check: $(STAMP) ## lint, types and the fast tests, side by side (under two minutes)
	@$(MAKE) $(BESIDE) lint types tests-fast

test: $(STAMP) ## lint, types and the tests; what CI runs (10 to 16 minutes on two cores)
	@$(MAKE) $(BESIDE) lint types tests-all

tests-fast: $(STAMP) ## the tests of `check` alone
	@$(BIN)/python -m pytest $(INNER) -m "not spark and not airflow and not crash and not interop and not s3 and not packaging and not slow" --by-day --one-stamp -n $(JOBS)

tests-all: $(STAMP) ## the tests of `test` alone
	@$(BIN)/python -m pytest tests --by-day -n $(JOBS) --dist loadgroup

test-night: $(STAMP) ## `test` with the tests and cases that it leaves to the night (45 minutes or so)
	@$(BIN)/python -m pytest tests -n $(JOBS) --dist loadgroup

test-property: $(STAMP) ## 2,000 random histories against a model (20 minutes or so)
	@OMNIGRAPH_PROPERTY_PROFILE=nightly $(BIN)/python -m pytest tests/property -n $(JOBS) --dist loadgroup

test-crash: $(STAMP) ## kills and lost replies at every call instead of a sample, on disk and on S3; for the night
	@OMNIGRAPH_CRASH_ALL=1 $(BIN)/python -m pytest tests/crash tests/s3/test_lost_reply.py -n $(JOBS) --dist loadgroup

test-interop: $(STAMP) ## with the real engine: OMNIGRAPH_BIN_STAMP3 and OMNIGRAPH_BIN_STAMP6 name it
	@$(BIN)/python -m pytest tests/interop -m interop

test-live: $(STAMP) ## 200 rounds beside a live engine for each stamp and kind of window, 40 histories of twins of each kind; for the night
	@OMNIGRAPH_LIVE_ROUNDS=$${OMNIGRAPH_LIVE_ROUNDS:-200} OMNIGRAPH_TWIN_SEEDS=$${OMNIGRAPH_TWIN_SEEDS:-40} \
		$(BIN)/python -m pytest tests/interop/test_live.py tests/interop/test_twins.py -n $(JOBS)

test-stack: $(STAMP) $(DRIVERS) $(VERSITYGW) $(COMPOSE_SPEC) ## docker-compose.yaml without containers, and S3 tests (needs Go, PostgreSQL)
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && apt-get install --quiet --yes postgresql; } \
		|| { echo "PostgreSQL was not found; install it (Debian: apt-get install postgresql) and run again" >&2; exit 1; }
	@OMNIGRAPH_TEST_STACK=1 OMNIGRAPH_TEST_S3=versitygw $(BIN)/python -m pytest tests -m "stack or s3" -n $(JOBS) --dist loadgroup

docs: $(STAMP) ## the generated pages, made anew from the code, and the site of all pages in site/
	@$(BIN)/python -m tools.reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html; for its search: $(BIN)/python -m http.server --directory site"

test-ui: $(STAMP) ## the page in a real Chromium; PICTURES=docs/img renews those of the documentation
	@command -v chromium || command -v google-chrome \
		|| { [ "$$(id -u)" = 0 ] && apt-get update --quiet \
			&& apt-get install --quiet --yes --no-install-recommends chromium fonts-dejavu-core; } \
		|| { echo "Chromium was not found; install it (Debian: apt-get install chromium) and run again" >&2; exit 1; }
	@$(UV) pip install $(PLAYWRIGHT)
	@OMNIGRAPH_TEST_CHROMIUM="$$(command -v chromium || command -v google-chrome)" OMNIGRAPH_TEST_PICTURES="$(PICTURES)" \
		$(BIN)/python -m pytest tests/ui

lint: $(STAMP) ## style and complexity (ruff), which package imports which (import-linter)
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache --no-logo

types: $(STAMP) ## mypy: strict for omnigraph_ops, plugins, dags, tools, tests/support; missing names in all tests
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/mypy.ini

bench: $(STAMP) ## the benchmarks behind the performance claims
	@for file in bench/bench_*.py; do echo "== $$file"; PYTHONPATH=. $(BIN)/python "$$file"; done

##@ Housekeeping
lock: $(STAMP) ## pin requirements.txt anew from pyproject.toml
	@$(UV) pip compile pyproject.toml $(LOCKED) --upgrade --quiet -o requirements.txt
	@echo "requirements.txt: $$(wc -l < requirements.txt) packages"

clean: ## remove .venv, the demo's state and caches
	@rm -rf $(VENV) .demo site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VERSITYGW):
	@command -v go >/dev/null || { echo "Go was not found; install it from https://go.dev/dl and run again" >&2; exit 1; }
	@echo "versitygw $(VERSITYGW_VERSION): a few minutes the first time"
	@GOBIN="$(CURDIR)/$(@D)" go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)

# The loader of `docker compose`, by itself: it installs under the name of its folder.
$(COMPOSE_SPEC):
	@command -v go >/dev/null || { echo "Go was not found; install it from https://go.dev/dl and run again" >&2; exit 1; }
	@GOBIN="$(CURDIR)/$(@D)" go install github.com/compose-spec/compose-go/v2/cmd@$(COMPOSE_SPEC_VERSION)
	@mv $(@D)/cmd $@

$(DRIVERS): stack/requirements.txt $(STAMP)
	@$(UV) pip install -r stack/requirements.txt
	@touch $@

$(STAMP): requirements.txt pyproject.toml tools/uv.py omnigraph_ops/lance/text_indexer.py
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer was not found; name one: make install PYTHON=..." >&2; exit 1; fi
	@echo "[1/4] $(VENV) with $$($(PYTHON) --version)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "[2/4] uv $(UV_VERSION), which installs the rest"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on uv==$(UV_VERSION)
	@echo "[3/4] $$(wc -l < requirements.txt) pinned packages and this project: 1 GB the first time"
	@$(UV) pip install --compile-bytecode -r requirements.txt --editable .
	@echo "[4/4] two older releases of pylance, which write text indexes as the engine does (docs/adr/0012)"
	@$(BIN)/omnigraph-ops install-text-indexer
	@touch $@
