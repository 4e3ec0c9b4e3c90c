# Everything runs in .venv, which the targets make themselves; PYTHON is any Python from 3.11 on.
# The stamp files in .venv make a second run start at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: bench check check-all clean demo figures fuzz generate help models soak test

help:
	@echo 'make demo              compile the digits network and run it on 360 test images'
	@echo 'make test              run all tests (ARGS="-k name" to choose)'
	@echo 'make check             lint, format, types, and whether generated pages are current'
	@echo 'make check-all         npuc check on every model, precision, level and target (minutes)'
	@echo 'make bench             speed and cycles against peers and bounds (JSON=file to keep them)'
	@echo 'make soak              long campaigns of faults (hours; ARGS="flips --short" to choose)'
	@echo 'make fuzz              a million mutated files (an hour)'
	@echo 'make figures           draw the figures of the docs again'
	@echo 'make generate          write the generated pages again'
	@echo 'make models            write the models with random weights again'
	@echo 'make clean             remove .venv and whatever was built'
	@echo 'PYTHON=python3.12      the interpreter to make .venv with'

demo: $(VENV)/installed
	@$(BIN)/python -m tools.demo

test: $(VENV)/developed
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto $(ARGS)

check: $(VENV)/developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.generate --check

check-all: $(VENV)/developed
	$(BIN)/python -m tools.check_models $(ARGS)

bench: $(VENV)/developed
	@$(BIN)/python -m tools.bench $(if $(JSON),--json $(JSON))

soak: $(VENV)/developed
	$(BIN)/python -m tools.soak --group soak $(ARGS)

fuzz: $(VENV)/developed
	$(BIN)/python -m tools.soak --group fuzz $(ARGS)

figures: $(VENV)/developed
	$(BIN)/python -m tools.figures $(ARGS)

generate: $(VENV)/installed
	$(BIN)/python -m tools.generate

models: $(VENV)/installed
	$(BIN)/python -m tools.make_models

clean:
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or later is needed: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo 'venv is missing from this Python (Debian: apt-get install python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/installed: pyproject.toml | $(VENV)/created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/developed: pyproject.toml | $(VENV)/created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,peers]'
	@touch $@ $(VENV)/installed
