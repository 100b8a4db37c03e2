# From a fresh clone: `make demo` gives a first result, `make test` checks everything. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
# make CONSTRAINTS=constraints.txt ... installs the versions that were tested together, instead of the latest
CONSTRAINTS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_FOR_TESTS := $(VENV)/.installed-for-tests
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix -c ,$(CONSTRAINTS))
# a skipped test is named, not counted: nobody should have to guess what was not tested
PYTEST := $(BIN)/python -m pytest --no-fold-skipped

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow bench audit install install-tests wheel clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1;\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F';' '{printf "%-20s%s\n", $$1, $$2}'

demo: $(INSTALLED) ## compare LIMIT with class means, on the embedded benchmark: table, model, report
	$(BIN)/fscil compare glyphs --methods limit,decoupled-cosine --seeds 1 --out runs/demo-$$(date +%Y%m%d-%H%M%S)

test: $(INSTALLED_FOR_TESTS) ## style, types and the quick tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(PYTEST) -n auto --maxprocesses 4 --dist loadfile

test-slow: $(INSTALLED_FOR_TESTS) ## the slow tests: kills, full disks, longer runs
	OMP_NUM_THREADS=1 $(PYTEST) -n 2 --dist loadfile -m slow

bench: $(INSTALLED) ## measure speed and memory, as ratios: a table and bench.json
	PYTHONPATH=. $(BIN)/python -m benchmarks

audit: $(INSTALLED) ## look up known vulnerabilities of the versions in constraints.txt; needs the network
	$(PIP_INSTALL) pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

install: $(INSTALLED) ## only install the package

install-tests: $(INSTALLED_FOR_TESTS) ## install what the tests need, too

wheel: $(INSTALLED_FOR_TESTS) ## build sdist and wheel into dist/
	$(BIN)/python -m build --no-isolation --outdir dist

clean: ## remove .venv, what was built and all caches, but not runs/
	rm -rf .venv build dist .ci/data .ci/data.part .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests results -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the last thing that venv makes, so a half-made environment is made again
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "fscil needs Python 3.11 or later; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/pip
	@echo "Installing into $(VENV). The first time this downloads PyTorch with its GPU libraries, about 6 GB on disk: minutes."
	$(PIP_INSTALL) -e .
	@touch $@

$(INSTALLED_FOR_TESTS): $(INSTALLED)
	$(PIP_INSTALL) -e '.[test]'
	@touch $@
