# The two commands: `make reproduce` and `make test`. Every target sets up what it needs.
PYTHON ?= python3.11
BIN := .venv/bin
# One thread per process: two threads on two busy cores can be several times slower than one.
export OMP_NUM_THREADS ?= 1
# A process per core; the tests of a file stay together, for they share what is slow to make.
PARALLEL := --numprocesses auto --dist loadfile

.PHONY: help setup reproduce test test-all lint format clean

help:
	@echo "make reproduce   the paper's MNIST experiments in small: table, verdicts, pictures, a page"
	@echo "make test        the tests; also builds the wheel and imports from it"
	@echo "make test-all    the slow and GPU tests too, with coverage"
	@echo "make lint        ruff and pyright; make format mends what can be mended"
	@echo "make setup       only make .venv with everything in it; make clean removes it and all results"

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv || python3 -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/models: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[models]'
	touch $@

reproduce: setup
	$(BIN)/symoptim reproduce invariance
	$(BIN)/symoptim reproduce table2 --profile quick

# Without coverage, which takes half as long again.
test: setup
	$(BIN)/python -m pytest $(PARALLEL)

test-all: setup .venv/models
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term -m ''

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist results .pytest_cache .ruff_cache .coverage
