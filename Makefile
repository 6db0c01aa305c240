# Everything a fresh machine needs is installed into .venv by these targets; they need Python 3.11+ and make.
# The demo takes the package alone; the other targets add what tests, checks and pages need, PyTorch and Flower among it.
PYTHON ?= python3
BIN := .venv/bin
PACKAGE := .venv/.package
TOOLS := .venv/.tools
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo test check slow versions chaos docs gallery bench format clean

demo: $(PACKAGE)
	$(BIN)/evenly compare --algorithms "fedavg,q-fedavg(q=1)" --rounds 3000 --seeds 3 --out demo --force

test: $(TOOLS)
	$(BIN)/python -m pytest

check: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

slow: $(TOOLS)
	$(BIN)/python -m pytest -m "slow or further"

# One federation with several versions of Flower, each in an environment of its own.
versions: $(TOOLS)
	$(BIN)/python -m tools.versions --write

# A hundred kills of every process of a federation, at every stage of a run.
chaos: $(TOOLS)
	$(BIN)/python -m tests.flower.chaos --write

docs: $(TOOLS)
	$(BIN)/python -m tools.generate
	$(BIN)/python -m tools.gallery --missing
	$(BIN)/python -m tools.site

# Renews the reports that the site shows; those whose data are missing are left out.
gallery: $(TOOLS)
	$(BIN)/python -m tools.gallery

bench: $(TOOLS)
	$(BIN)/python benchmarks/peers.py all --short --compare

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .versions demo results site .site .gallery

$(PACKAGE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

$(TOOLS): $(PACKAGE)
	$(INSTALL) '.[dev]'
	touch $@
