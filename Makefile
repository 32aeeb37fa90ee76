# make demo   sets up and diagnoses an example run, writing the page beside it
# make test   sets up and runs every check and test
# make bench  measures accuracy and speed
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m compileall -q src
	touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

# exit code 1 says that a fault was found, which is what the demo is about
demo: $(VENV)/.base
	@$(BIN)/tuneclinic diagnose examples/worked-case/before --html examples/worked-case/report.html; test $$? -le 1
	@echo "The page is examples/worked-case/report.html. After the template is mended, the first learning rate works:"
	@$(BIN)/tuneclinic diagnose examples/worked-case/after

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -q

bench: $(VENV)/.test
	$(BIN)/python bench/accuracy.py
	$(BIN)/python bench/speed.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
