# Everything Rota needs is installed by pip into .venv; no root, no Java and no PostgreSQL need be there.
PYTHON ?= python3
BIN := .venv/bin
# Three files of tests at a time, in their order: the tests with real processes wait more than they compute.
PYTEST := $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
# Modules and rewritten tests are compiled once, and not at each run, whatever the caller's habits are.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-more unit lint up bench soak blackout founding chaos lock compose-test clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

setup: .venv/installed  ## make .venv with everything in it

.venv/installed: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Rota needs Python 3.11 or later; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setup: installing into .venv (about 500 MB; a few minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes --requirement requirements/dev.lock
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: setup  ## three nodes on this machine: watch them run, fail over and finish (KEEP=1 leaves them running)
	@$(BIN)/python -m examples.demo $(if $(KEEP),--keep)

up: setup  ## three nodes on this machine, in the foreground
	@$(BIN)/rota up

lint: setup  ## style, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: setup  ## the tests without sockets: a few seconds
	@$(PYTEST) tests/unit

test: lint  ## all that must hold: style, types, contracts, docs and the tests
	@$(PYTEST)

test-more: .venv/bench  ## what does not fit into make test: longer tests, and rounds of faults against real nodes
	@$(PYTEST) -m more
	@$(BIN)/python -m bench.blackout --rounds 5
	@$(BIN)/python -m bench.chaos --loopback --nodes 3 --rounds 10

soak: setup  ## what is too long for make test: faults against a real cluster (ROUNDS=20), simulated histories (HISTORIES=20000)
	@$(BIN)/python -m bench.chaos --loopback --nodes 3 --rounds $(or $(ROUNDS),20)
	@$(BIN)/python -m tests.simulation --histories $(or $(HISTORIES),20000) --first $(or $(FIRST),500)

blackout: setup  ## kill -9 of all nodes at once, again and again, under writes: what was acknowledged is there (ROUNDS=50)
	@$(BIN)/python -m bench.blackout --rounds $(or $(ROUNDS),50) $(if $(SEED),--seed $(SEED))

founding: setup  ## first starts, grown lists and lost disks at random times and cuts: one cluster, nothing lost (ROUNDS=20)
	@$(BIN)/python -m bench.founding --rounds $(or $(ROUNDS),20) $(if $(SEED),--seed $(SEED))

chaos: .venv/bench  ## five nodes under every fault there is, with a table and a picture at the end; wants root (MINUTES=30)
	@$(BIN)/python -m bench.chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

bench: .venv/bench  ## what the figures in the README were measured with
	@$(BIN)/python -m bench $(NAMES)

.venv/bench: .venv/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

compose-test: setup  ## the compose file on a real Docker engine: kill, fail over, grow to five and back, down and up again
	@$(BIN)/python -m tests.compose

lock: setup  ## choose the newest versions that fit and write them down, with the hashes of their files (KEEP=1: the same versions)
	@$(BIN)/pip install -qq --disable-pip-version-check uv
	@for extra in "dev:--extra dev" "rota:--extra s3" "rota-spark:--extra s3 --extra spark"; do \
	  $(BIN)/uv pip compile --quiet $(if $(KEEP),,--upgrade) --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-annotate $${extra#*:} --output-file requirements/$${extra%%:*}.lock pyproject.toml; done

clean:  ## remove what the demo and rota up left behind
	@rm -rf .demo .rota .chaos
