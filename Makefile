# Everything that Rota needs is installed by pip into .venv: root, Java and PostgreSQL are not required.
PYTHON ?= python3
BIN := .venv/bin
# Four test files at a time, each in order: the simulated histories are one of them nearly to the end, at the lowest
# priority, and tests with real processes mostly wait.
PYTEST := $(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder
# Bytecode is kept between runs, even if the caller's environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup spark-classes demo test test-changed test-more test-browser screenshots unit lint up bench soak blackout founding chaos reference lock compose-test monitoring-test clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

setup: .venv/installed  ## install everything into .venv

.venv/installed: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Rota needs Python 3.11 or later; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setup: installing Python packages into .venv (downloads about 700 MB, two thirds of it Spark; 1.6 GB on the disk; 3 to 10 minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python requirements/install.py requirements/dev.lock
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --editable .
	@touch $@

spark-classes: .venv/spark-classes  ## have Spark start in half the time: keep its classes as a JVM has them (a minute, 200 MB)

.venv/spark-classes: .venv/installed spark_tasks/spark/jvm.py
	@$(BIN)/python -m spark_tasks.spark.make_class_cache || echo "setup: going on without it" >&2
	@touch $@

demo: spark-classes  ## three nodes on this machine run work and fail over (KEEP=1 leaves them running)
	@$(BIN)/python -m examples.demo $(if $(KEEP),--keep)

up: spark-classes  ## three nodes on this machine, in the foreground
	@$(BIN)/rota up

lint: setup  ## style, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: setup  ## the tests without sockets
	@$(PYTEST) tests/unit

# A new clone has no bytecode of the tests. One process makes it beside mypy; otherwise each of the four would, for itself.
test: setup  ## everything that must hold: style, types, import contracts, docs and tests (7 minutes on two cores)
	@began=$$(date +%s); \
	if [ ! -d tests/__pycache__ ]; then $(BIN)/pytest --collect-only -qq >/dev/null 2>&1 & fi; \
	$(MAKE) --no-print-directory lint; result=$$?; wait; \
	[ $$result -ne 0 ] || { $(PYTEST); result=$$?; }; \
	took=$$(($$(date +%s) - began)); echo "make test took $$((took / 60)) min $$((took % 60)) s"; exit $$result

test-changed: lint  ## style, types, import contracts, and the tests of what differs from main (BASE=COMMIT)
	@tests=$$($(BIN)/python -m testkit.changed_tests $(or $(BASE),main)) && [ -z "$$tests" ] || $(PYTEST) $$tests

test-more: .venv/bench spark-classes  ## longer tests, and rounds of faults against real nodes
	@$(PYTEST) -m more
	@$(BIN)/python -m tests.simulation --histories 120 --first 80
	@$(BIN)/python -m bench.blackout --rounds 5
	@$(BIN)/python -m bench.chaos --loopback --nodes 3 --rounds 6
	@$(MAKE) --no-print-directory test-browser

test-browser: .venv/browser  ## the page in this machine's Chromium (apt-get install chromium), with real nodes behind it (MANY=1: and 100,000 tasks)
	@$(BIN)/python -m tests.browser $(if $(MANY),-m browser)

screenshots: .venv/browser  ## take the pictures in docs/images (NAMES="overview tasks")
	@$(BIN)/python -m tests.browser.screenshots $(NAMES)

soak: setup  ## many rounds of faults against a real cluster (ROUNDS=20) and of simulated histories (HISTORIES=20000)
	@$(BIN)/python -m bench.chaos --loopback --nodes 3 --rounds $(or $(ROUNDS),20)
	@$(BIN)/python -m tests.simulation --histories $(or $(HISTORIES),20000) --first $(or $(FIRST),500)

blackout: setup  ## kill -9 of all nodes at once under writes; checks that acknowledged writes survive (ROUNDS=50)
	@$(BIN)/python -m bench.blackout --rounds $(or $(ROUNDS),50) $(if $(SEED),--seed $(SEED))

founding: setup  ## first starts with differing lists, lost disks and partitions; checks that one cluster forms (ROUNDS=20)
	@$(BIN)/python -m bench.founding --rounds $(or $(ROUNDS),20) $(if $(SEED),--seed $(SEED))

chaos: .venv/bench  ## five nodes under every kind of fault, with a table and a picture at the end; needs root (MINUTES=30)
	@$(BIN)/python -m bench.chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

bench: .venv/bench spark-classes  ## measure the figures in the documents
	@$(BIN)/python -m bench $(NAMES)

.venv/bench: .venv/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

.venv/browser: .venv/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@touch $@

compose-test: setup  ## the compose file on a Docker engine: nodes that are killed, grow and shrink; a Spark cluster (NAMES="nodes spark")
	@$(BIN)/python -m tests.compose $(NAMES)

reference: setup  ## write docs/reference/ from the code; make test compares
	@$(BIN)/python -m testkit.reference

lock: setup  ## write the lock files with the newest versions that fit, and hashes (KEEP=1: keep the versions)
	@$(BIN)/pip install -qq --disable-pip-version-check uv
	@for extra in "dev:--extra dev" "rota:--extra s3 --extra notify --extra wal --extra otel --extra lineage" "rota-spark:--extra s3 --extra notify --extra wal --extra otel --extra lineage --extra spark"; do \
	  $(BIN)/uv pip compile --quiet $(if $(KEEP),,--upgrade) --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-annotate $${extra#*:} --output-file requirements/$${extra%%:*}.lock pyproject.toml; done

monitoring-test: setup  ## the alert rules and the board of deploy/, by a real Prometheus (apt-get install prometheus)
	@$(BIN)/python -m tests.monitoring

clean:  ## remove the folders of the demo, rota up and chaos
	@rm -rf .demo .rota .chaos
