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

# The interpreter of newer tritons refuses loads that Helion 1.5 generates: 3.6 is asked for first, and what torch
# asks for is taken where its own triton is another one.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"

$(STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) "triton==3.6.0" || $(INSTALL)
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
