PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test quick install lint verify soak wheel clean

install: $(STAMP)

# The lock holds what was tested together; as a constraint it also works where some packages do not apply.
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint requirements.lock --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/privit demo

lint: install
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

# A file's tests share what it makes, so one worker has them all. Tests between processes wait for each other a
# good part of their time: three workers keep two cores busy.
test: install lint
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 15

# Everything but what takes longest: under two minutes on two idle cores.
quick: install
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m 'not slow'

# The longer "must hold" checks; writes docs/results/verify.json.
verify: install
	$(BIN)/python -m benchmarks.verify

# 1,000 private queries of 100 clients, 50 more killed at random moments, workers killed, 200 bad inputs, and 200 sessions over rough networks.
soak: install
	$(BIN)/python -m benchmarks.soak --out soak.json

# Builds the wheel, installs it into empty environments and asks a private question from there.
wheel: install
	$(BIN)/python -m benchmarks.wheel

clean:
	rm -rf $(VENV) build dist src/*.egg-info
