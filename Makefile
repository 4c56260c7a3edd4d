# make serve   install, compile what must be compiled, and serve the embedded model on 127.0.0.1:8080
# make check   format, lint, types, layering, fast tests (a few minutes on 2 cores)
# make test    every test that needs no special hardware, the contract and real-model ones included
# make soak    the long randomised runs
# make fuzz    send a server what its OpenAPI document allows, and what it does not, for a minute (FOR=60, SEED=1)
# make bench   what turns and their bookkeeping cost; with ARGS, also `warmlane bench` with these
# make clients what other people's clients make of the server: installs them apart, needs the network once
# make peer    compile llama-server, the bench's peer, into .peer/bin (about 10 minutes)
# make clean   remove the virtualenv and every cache
#
# PYTHON=python3.12 picks another interpreter, ARGS="--port 9000" adds flags to serve, CHECKED=1 leaves out of make test
# what make check has just run. A whole comparison:
#   make peer && make bench ARGS="--start --peer-bin .peer/bin/llama-server"
# CLIENTS="litellm npm-pi" has make clients run only these, SERVER_PYTHON=PATH has it serve with another interpreter.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
SERVER_PYTHON ?= $(BIN)/python
PIP_CLIENTS := $(basename $(notdir $(wildcard tests/clients/python/requirements/*.txt)))
NPM_CLIENTS := $(patsubst tests/clients/npm/test/%.test.js,npm-%,$(wildcard tests/clients/npm/test/*.test.js))
CLIENTS ?= $(PIP_CLIENTS) $(NPM_CLIENTS)
NPM_STAMP := tests/clients/npm/node_modules/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

LLAMA := $(shell sed -n 's/^ *"\(llama-cpp-python==[0-9.]*\)",$$/\1/p' pyproject.toml)
VENV_STAMP := $(VENV)/.made
LLAMA_STAMP := $(VENV)/.$(subst ==,-,$(LLAMA))
INSTALL_STAMP := $(VENV)/.installed

SCHEMATHESIS := schemathesis==4.32.5
FUZZ_STAMP := .fuzz/.$(subst ==,-,$(SCHEMATHESIS))

.PHONY: help serve install check test clients soak fuzz bench peer clean tools

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

serve: $(INSTALL_STAMP)
	@exec $(BIN)/warmlane serve $(ARGS)

install: $(INSTALL_STAMP)

check: $(INSTALL_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit --numprocesses auto -m "not postgres"

test: $(INSTALL_STAMP)
	$(BIN)/python -m pytest tests/unit --numprocesses auto $(if $(CHECKED),-m postgres)
	$(BIN)/python -m pytest tests --ignore=tests/soak --ignore=tests/unit

soak: $(INSTALL_STAMP)
	$(BIN)/python -m pytest tests/soak --timeout=7200

clients: CHOSEN_PIP = $(filter-out npm-%,$(CLIENTS))
clients: CHOSEN_NPM = $(patsubst npm-%,%,$(filter npm-%,$(CLIENTS)))
clients: $(if $(filter $(BIN)/python,$(SERVER_PYTHON)),$(INSTALL_STAMP)) \
  $(patsubst %,.clients/%/.installed,$(filter-out npm-%,$(CLIENTS))) $(if $(filter npm-%,$(CLIENTS)),$(NPM_STAMP))
	@failed=0; export SERVER_PYTHON="$(SERVER_PYTHON)"; \
	$(if $(CHOSEN_PIP),./tests/clients/python/run $(CHOSEN_PIP) || failed=1;) \
	$(if $(CHOSEN_NPM),./tests/clients/npm/run $(CHOSEN_NPM) || failed=1;) \
	exit $$failed

# A virtualenv for each, as some need versions of a package that others do not take.
.clients/%/.installed: tests/clients/python/requirements/%.txt | tools
	@echo "make: installing the client $*"
	@$(PYTHON) -m venv --clear .clients/$*
	@.clients/$*/bin/python -m pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

# Not `npm ci`: it insists on the programs of every platform, and not every registry has them all.
$(NPM_STAMP): tests/clients/npm/package-lock.json
	@command -v npm >/dev/null || { echo "make: npm was not found. Install Node 20 or newer, or give CLIENTS without npm-…" >&2; exit 1; }
	@echo "make: installing the clients from npm"
	@npm --prefix tests/clients/npm install --no-save --no-fund --no-audit
	@touch $@

fuzz: $(if $(filter $(BIN)/python,$(SERVER_PYTHON)),$(INSTALL_STAMP)) $(FUZZ_STAMP)
	@SERVER_PYTHON="$(SERVER_PYTHON)" ./tools/fuzz .fuzz $(or $(FOR),60) $(or $(SEED),1)

# A virtualenv of its own: what it depends on is not bound by what the server does.
$(FUZZ_STAMP): | tools
	@echo "make: installing $(SCHEMATHESIS) in .fuzz"
	@$(PYTHON) -m venv .fuzz
	@.fuzz/bin/python -m pip --disable-pip-version-check install --quiet "$(SCHEMATHESIS)"
	@touch $@

bench: $(INSTALL_STAMP)
	$(BIN)/python bench/micro_sessions.py
	$(BIN)/python bench/refusals.py
	$(BIN)/python bench/warm_turn.py
	$(BIN)/python bench/grammar_cost.py
	$(if $(ARGS),$(BIN)/warmlane bench $(ARGS))

peer: .peer/bin/llama-server

.peer/bin/llama-server: | $(VENV_STAMP)
	@PIP="$(PIP)" ./tools/build-peer "$(LLAMA)"

clean:
	rm -rf $(VENV) .clients .fuzz dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf tests/clients/npm/node_modules
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# What must be there before anything can be built.
tools:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) was not found. Install Python 3.11 or newer, or give PYTHON=PATH." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $$($(PYTHON) --version 2>&1) is too old; Warmlane needs 3.11 or newer. Give one with PYTHON=PATH." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make virtualenvs. Install its venv module (Debian: apt install python3-venv)." >&2; exit 1; }

$(VENV_STAMP): | tools
	@echo "make: creating the virtualenv in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# A step of its own, so that a change to the project never compiles llama.cpp again. pip keeps the wheel in its cache.
$(LLAMA_STAMP): $(VENV_STAMP)
	@command -v "$${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || { \
	  echo "make: no C++ compiler was found (c++, g++ or clang++). Install one (Debian: apt install g++)." >&2; exit 1; }
	@PIP="$(PIP)" ./tools/install-llama "$(LLAMA)"
	@touch $@

$(INSTALL_STAMP): pyproject.toml $(LLAMA_STAMP)
	@echo "make: installing Warmlane and its dependencies"
	@$(PIP) install --quiet --editable '.[demo,dev,bench]'
	@touch $@
