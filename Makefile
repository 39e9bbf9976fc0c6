# Everything here needs Python 3.11 or newer and nothing else, but the real servers of `make test`: it installs them (Debian) or says how.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOCKS := requirements
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
UV_VERSION := 0.13.9

# Quick: what needs no server, breaks nothing and takes seconds. ARGS is handed to the command of a target.
QUICK := not server and not slow and not faults
ARGS ?=
DEMO_ARGS = $(if $(BUYERS),--buyers $(BUYERS)) $(ARGS)

.PHONY: help
help: ## list the targets
	@echo "Dropgate. Targets:"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "Variables: PYTHON=python3.12 (which Python), VENV=$(VENV), ARGS='...' (more for the command), BUYERS=100000 (demo)"

# --- for trying it ----------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.runtime ## run the demonstration: a sale of 1,000 units, 20,000 buyers, all on this machine
	@$(BIN)/dropgate demo $(DEMO_ARGS)

# --- for changing it --------------------------------------------------------------------------------------------------

# A fault test mostly waits for a time-out of somebody, so several run side by side. One that fails so has a second run,
# alone, with nothing in its way: a time-out that an overloaded machine caused is no finding. Both runs are shown, and
# what fails alone too fails the whole.
JOBS ?= 3
TESTS := $(BIN)/python -m pytest
# RocketMQ's two clients exclude each other, so the native one has an environment of its own, with a lock of its own.
NATIVE := $(VENV)-rocketmq4
# The build of librocketmq that the tests take is for this platform alone. CI leaves nothing out.
NATIVE_HERE := $(CI)$(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m))
NO_NATIVE := echo "==> left out: the classic client's tests need Linux on x86-64, where their build of librocketmq runs"
DEV_LOCK ?= dev

.PHONY: test
test: lint types layers server-needs native-server-needs ## all checks and all tests, on real servers, which it installs first
	@$(MAKE) tests

# $(1): which tests, $(2): in how many processes side by side.
beside = $(TESTS) -m "$(1)" -n $(2) --dist loadgroup $(ARGS) || { code=$$?; [ $$code -eq 1 ] || exit $$code; \
    echo "==> tests that failed beside others, once more and alone"; $(TESTS) -m "$(1)" --last-failed --last-failed-no-failures none; }

.PHONY: tests
tests: $(VENV)/.dev
	@echo "==> tests on RocketMQ"
	@$(call beside,rocketmq,2)
	@echo "==> tests on RocketMQ, classic protocol"
	@$(if $(NATIVE_HERE),$(MAKE) VENV=$(NATIVE) DEV_LOCK=rocketmq4 native-tests,$(NO_NATIVE))
	@echo "==> tests"
	@$(call beside,not rocketmq,$(JOBS))

.PHONY: test-rocketmq
test-rocketmq: server-needs ## only those that start a real RocketMQ broker (a JVM, 0.6 GB)
	@$(call beside,rocketmq,2)

.PHONY: test-rocketmq4
test-rocketmq4: ## all that the classic protocol's native client can be asked, 15 minutes; make test has the half of it
	@TESTS_THOROUGH=1 $(MAKE) VENV=$(NATIVE) DEV_LOCK=rocketmq4 native-tests ALL_STORIES=" or one_client_suffices"

.PHONY: native-tests
native-tests: native-needs
	@$(call beside,rocketmq4 or (either_client and rocketmq and (not one_client_suffices$(ALL_STORIES))),2)

.PHONY: native-server-needs
native-server-needs:
	@$(if $(NATIVE_HERE),$(MAKE) VENV=$(NATIVE) DEV_LOCK=rocketmq4 native-needs,$(NO_NATIVE))

.PHONY: native-needs
native-needs: $(VENV)/.dev
	@$(BIN)/python -m tests.servers install --only rocketmq rocketmq-4.9 librocketmq

.PHONY: server-needs
server-needs: $(VENV)/.dev
	@$(BIN)/python -m tests.servers install

.PHONY: servers
servers: $(VENV)/.dev ## run RocketMQ, MariaDB and Redis for you until Ctrl-C, and say where they are
	@$(BIN)/python -m tests.servers up $(ARGS)

# The bench wants the servers of `make servers`, which run in another terminal, or yours: BENCH_ENV names the settings.
BENCH_ENV ?= .servers/env
BENCH = set -a; . $(BENCH_ENV); set +a; $(BIN)/dropgate bench $(addprefix --jars ,$(firstword $(wildcard .servers/rocketmq-5*)))
NATIVE_BENCH = $(if $(wildcard $(NATIVE)/bin/python),--also-python $(NATIVE)/bin/python \
    $(addprefix --also-library ,$(firstword $(wildcard .servers/librocketmq-*))))

.PHONY: bench
bench: $(VENV)/.dev ## measure floors, comparators and Dropgate on the servers of make servers, each with its audit
	@[ -f $(BENCH_ENV) ] || { echo "There is no $(BENCH_ENV): run 'make servers' in another terminal." >&2; exit 1; }
	@$(BENCH) $(NATIVE_BENCH) $(ARGS)

.PHONY: bench-check
bench-check: $(VENV)/.dev ## hold this tree to wide margins by ratios; no part of make test
	@[ -f $(BENCH_ENV) ] || { echo "There is no $(BENCH_ENV): run 'make servers' in another terminal." >&2; exit 1; }
	@rm -rf .bench-check
	@$(BENCH) --only floors,engine,http,afterwards --clients 64 --repeats 1 --into .bench-check $(ARGS) >/dev/null || true
	@$(BIN)/python -m bench.check .bench-check

.PHONY: unit
unit: $(VENV)/.dev ## the quick tests: no server, nothing slow, nothing broken on purpose
	@$(BIN)/python -m pytest -m "$(QUICK)" $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## style: ruff, format and the measures of scripts/tidy.py
	@echo "==> lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "These files are not formatted: make fix does it." >&2; exit 1; }
	@$(BIN)/python scripts/tidy.py

.PHONY: fix
fix: $(VENV)/.dev ## let ruff repair and format what it can
	@$(BIN)/ruff check --fix . || true
	@$(BIN)/ruff format .

.PHONY: types
types: $(VENV)/.dev ## mypy, strict for service and consumers
	@echo "==> types"
	@$(BIN)/mypy

.PHONY: layers
layers: $(VENV)/.dev ## the import rules
	@echo "==> layers"
	@$(BIN)/lint-imports --no-logo

.PHONY: model
model: ## check the protocol's model with Spin (installs nothing)
	@echo "==> model"
	@for tool in spin gcc; do command -v $$tool >/dev/null || { \
	    echo "The model check needs $$tool: on Debian or Ubuntu, 'apt-get install spin gcc'; on macOS, 'brew install spin gcc'." >&2; \
	    exit 1; }; done
	@docs/model/run $(ARGS)

# --- for releasing it -------------------------------------------------------------------------------------------------

.PHONY: wheel
wheel: $(VENV)/.dev ## build the wheel into dist/ and look whether Lua and SQL are in it
	@rm -rf dist
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@for part in service/_resources/lua/reserve.lua service/_resources/sql/schema.sql service/cli/main.py consumers/; do \
	    $(BIN)/python -m zipfile -l dist/*.whl | grep "^$$part" >/dev/null || { echo "The wheel lacks $$part." >&2; exit 1; }; done
	@ls dist/*.whl

# The dev lock is made first and binds the others, so that a thing has one version everywhere. A mirror set for pip is
# used for uv too; no address gets into the files.
LOCK_VENV := .venv-lock
COMPILE = $(if $(PIP_INDEX_URL),UV_DEFAULT_INDEX=$(PIP_INDEX_URL)) $(LOCK_VENV)/bin/uv pip compile --quiet --universal \
    --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate $(LOCK_ARGS)

.PHONY: lock
lock: $(LOCK_VENV)/.uv-$(UV_VERSION) ## pin again what pyproject.toml asks for (LOCK_ARGS=--upgrade: the newest)
	@echo "==> lock"
	@$(COMPILE) pyproject.toml --extra mysql --extra rocketmq5 --group dev -o $(LOCKS)/dev.lock
	@$(COMPILE) pyproject.toml --extra mysql --extra rocketmq4 --group dev -c $(LOCKS)/dev.lock -o $(LOCKS)/rocketmq4.lock
	@$(COMPILE) pyproject.toml -c $(LOCKS)/dev.lock -o $(LOCKS)/base.lock
	@$(COMPILE) --group pyproject.toml:build -c $(LOCKS)/dev.lock -o $(LOCKS)/build.lock
	@! grep -nE '://|file:| @ |^-e|^[./]' $(LOCKS)/*.lock || { echo "A lock file has an address or a path in it." >&2; exit 1; }
	@wc -l $(LOCKS)/*.lock

.PHONY: clean
clean: ## remove the environments, what was built or fetched and all caches; keeps .dropgate, the data
	@rm -rf $(VENV) $(NATIVE) $(LOCK_VENV) .servers build dist .cache .mypy_cache .pytest_cache .bench-check .ruff_cache .import_linter_cache .hypothesis .coverage*
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# --- the environment: one, with a stamp for what is in it -------------------------------------------------------------

INSTALL_PROJECT = $(PIP) install --no-deps --no-build-isolation --editable . && { found=$$($(BIN)/python -m pip check) || { \
    echo "$$found" >&2; echo "The lock files do not fit pyproject.toml: make lock pins again." >&2; exit 1; }; }

$(VENV)/.runtime: $(LOCKS)/base.lock $(LOCKS)/build.lock pyproject.toml
	@$(MAKE) $(BIN)/.usable
	@echo "==> installing what Dropgate needs to run into $(VENV) (once, about half a minute)"
	@$(PIP) install --require-hashes -r $(LOCKS)/build.lock -r $(LOCKS)/base.lock
	@$(INSTALL_PROJECT)
	@touch $@

$(VENV)/.dev: $(LOCKS)/$(DEV_LOCK).lock pyproject.toml
	@$(MAKE) $(BIN)/.usable
	@echo "==> installing Dropgate and the tools to work on it into $(VENV) (once, about a minute)"
	@$(PIP) install --require-hashes -r $(LOCKS)/$(DEV_LOCK).lock
	@$(INSTALL_PROJECT)
	@touch $@ $(VENV)/.runtime

$(LOCK_VENV)/.uv-$(UV_VERSION):
	@$(MAKE) python-check
	@$(PYTHON) -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python -m pip --quiet --disable-pip-version-check install uv==$(UV_VERSION)
	@touch $@

# An environment whose Python is gone, or that was moved, is made anew.
.PHONY: $(BIN)/.usable
$(BIN)/.usable:
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	    $(MAKE) python-check; echo "==> making $(VENV)"; rm -rf $(VENV); \
	    $(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make environments: on Debian or Ubuntu, 'apt-get install python3-venv'." >&2; exit 1; }; }

.PHONY: python-check
python-check:
	@command -v $(PYTHON) >/dev/null || { echo "Dropgate needs Python 3.11 or newer, and there is no $(PYTHON): say which one by PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Dropgate needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1): say which one by PYTHON=..." >&2; exit 1; }
