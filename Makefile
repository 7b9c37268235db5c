# Each target does all of its own set-up: on a fresh machine `make demo` and `make test` just work.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: help demo test lint types tests format clean

help:
	@echo "make demo    tune two kernels (on a GPU if there is one, else in Triton's interpreter), then serve them"
	@echo "make test    ruff, mypy, and the tests"
	@echo "make format  let ruff format and sort"
	@echo "make clean   remove what these made"

$(STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py .demo

test: lint types tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

tests: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .demo build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
