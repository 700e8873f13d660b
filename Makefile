# Each target sets up what it needs: a .venv with the locked packages. Only Python >= 3.11 and make are assumed.
#   make demo    make test    make test-all    make test-slice    make test-shard    make test-budget    make lint
#   make bench    make bench-all    make results    make baselines    make lock    make test-targets    make docs
#   make docs-serve    make release-check    make test-jax JAX=0.9.2
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist loadfile

# The first interpreter that runs and is new enough; override with `make PYTHON=/path/to/python test`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)

# Compiling is most of a test's time. What may be compiled with few optimisations runs first, so compiled; then the rest,
# of which the quick suite has too little to be worth workers.
LIGHT := $(BIN)/python -m pytest --light $(PYTEST_ARGS)
OPTIMISED := $(BIN)/python -m pytest --optimised $(PYTEST_ARGS)

.PHONY: help demo test test-all test-slice test-shard test-budget test-targets lint format lock bench bench-all results baselines docs \
	docs-serve release-check test-jax clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.installed
	$(BIN)/jaxrl train ppo CartPole-v1 --seeds 4 --total-steps 500000 --out runs/demo --overwrite --video

test: $(VENV)/.installed-dev
	$(LIGHT) -m "not slow" --compile-budget warn
	$(BIN)/python -m pytest --optimised -m "not slow" $(shell grep -rl "mark.optimised" tests --include="test_*.py")

# A third of what is slow is in one file: workers that are done take from those that are not.
test-all: $(VENV)/.installed-dev-reference
	$(LIGHT) --dist worksteal
	$(OPTIMISED) --dist worksteal --clients

# A twelfth of the slow tests, another one after each commit.
test-slice: $(VENV)/.installed-dev
	$(LIGHT) --dist worksteal --slice $(shell git rev-list --count HEAD)
	$(OPTIMISED) --dist worksteal --slice $(shell git rev-list --count HEAD)

# One of the shards that together are `make test-all`, as the nightly workflow runs them: SHARD=quick, or 0 to 11.
PART = $(if $(filter quick,$(SHARD)),-m "not slow",--slice $(SHARD))

test-shard: $(VENV)/.installed-dev-reference
	@test -n "$(SHARD)" || { echo "Say which: make test-shard SHARD=quick, or a number from 0 to 11." >&2; exit 1; }
	$(LIGHT) --dist worksteal $(PART)
	$(OPTIMISED) --dist worksteal --clients $(PART)

# The twenty dearest files of the quick suite, and which of them far exceed what tests/compile_budget.json allows.
test-budget: $(VENV)/.installed-dev
	$(LIGHT) -m "not slow" --compile-budget report

# Every program through the compilers of a TPU and a GPU, without either: two environments of 6 GB, hours of 2 cores. It
# goes on where it was stopped; TARGETS="--only short" is the table of docs/accelerators.md.
test-targets: $(VENV)-tpu/.installed $(VENV)-cuda/.installed
	JAX_PLATFORMS=cpu $(VENV)-tpu/bin/python benchmarks/accelerator_targets.py \
		--tpu $(VENV)-tpu/bin/python --gpu $(VENV)-cuda/bin/python $(TARGETS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(VENV)/.installed-dev
	$(BIN)/uv pip compile --universal --python-version 3.11 --upgrade --quiet --no-header --annotation-style line \
		--extra dev --extra docs pyproject.toml --output-file requirements.lock

bench: $(VENV)/.installed
	$(BIN)/jaxrl bench

# The ratios that are to last: a row of their history and docs/benchmark_history.md, a quarter of an hour. AGAINST=FOLDER
# measures another checkout beside this one instead, as the nightly workflow does with yesterday's.
bench-all: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/history.py $(if $(AGAINST),--against $(AGAINST))

results: $(VENV)/.installed-dev
	$(BIN)/python experiments/results/run.py

# The scores of record of all ids, or of those that match: make baselines ONLY="Maze*". Goes on where it was stopped.
ONLY ?= *
baselines: $(VENV)/.installed-dev
	-set -f; nice -n 19 $(BIN)/python experiments/scores/run.py random --only $(ONLY)
	-set -f; nice -n 19 $(BIN)/python experiments/scores/run.py reference --only $(ONLY)
	nice -n 19 $(BIN)/python experiments/scores/run.py ours
	-set -f; nice -n 19 $(BIN)/python experiments/scores/run.py learn --only $(ONLY)
	nice -n 19 $(BIN)/python experiments/scores/run.py page

# The documentation site, a folder a version beside what is in site/ already; http://localhost:8000 shows it while it is
# written. The theme warns of a mkdocs 2 that it does not work with, and the extra excludes.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
MKDOCS := NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/python -m mkdocs

docs: $(VENV)-docs/.installed
	$(MKDOCS) build --strict --quiet --site-dir site/$(VERSION)
	$(VENV)-docs/bin/python -m tools.search site/$(VERSION)

docs-serve: $(VENV)-docs/.installed
	$(MKDOCS) serve

# The quick suite on another jax than the lock's, in an environment of its own, with what pip chooses beside it:
# make test-jax JAX=0.9.2; without JAX the newest.
test-jax: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)-jax
	$(VENV)-jax/bin/python -m pip install --disable-pip-version-check --quiet -e ".[test]" $(if $(JAX),jax==$(JAX))
	$(VENV)-jax/bin/python -m pytest --light $(PYTEST_ARGS) -m "not slow"

# Builds what would be published and uses it as a reader of README and the notebooks would; the index must be reachable.
release-check: $(VENV)-release/.installed
	$(VENV)-release/bin/python .ci/release_check.py

clean:
	rm -rf $(VENV) $(VENV)-tpu $(VENV)-cuda $(VENV)-docs $(VENV)-release $(VENV)-jax .hypothesis .pytest_cache .ruff_cache build dist \
		site *.egg-info

# .installed holds the library, .installed-<extra>-<extra> the library with those extras.
comma := ,

$(VENV)/.installed: pyproject.toml requirements.lock | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c requirements.lock -e .
	touch $@

$(VENV)/.installed-%: pyproject.toml requirements.lock | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c requirements.lock \
		-e ".[$(subst -,$(comma),$*)]"
	touch $@ $(VENV)/.installed

# .venv-<extra>/.installed: an environment of its own with the library and a plug-in that is not to stand beside others.
$(VENV)-%/.installed: pyproject.toml requirements.lock | $(BIN)/python
	$(BIN)/python -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --disable-pip-version-check --quiet -c requirements.lock -e ".[$*]"
	touch $@

# The site and what is released are made from the sources, which nobody imports: of the library only the extra's names are
# needed.
$(VENV)-docs/.installed $(VENV)-release/.installed: $(VENV)-%/.installed: pyproject.toml requirements.lock | $(BIN)/python
	$(BIN)/python -m venv $(VENV)-$*
	$(BIN)/python -c "import tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; \
		print(*extras['$*'], sep='\n')" > $(VENV)-$*/requirements.txt
	$(VENV)-$*/bin/python -m pip install --disable-pip-version-check --quiet -c requirements.lock \
		-r $(VENV)-$*/requirements.txt
	touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "jaxrl needs Python 3.11 or newer; none was found. Install one, or name it:" \
		"make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv module is missing or broken" \
		"(on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
