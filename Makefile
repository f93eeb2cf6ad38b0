# Both commands of the README: `make demo` and `make test`. The environment is made once
# and only again when the project's own files say so.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INPUTS := pyproject.toml constraints.txt

# Threads that wait should sleep: on a busy machine spinning ones cost a tenfold.
export OMP_WAIT_POLICY ?= PASSIVE
# Hundreds of processes read the same sources: only the first should compile them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test portable fuzz lint docs readme tutorials bench clean

demo: $(VENV)/.installed
	$(BIN)/gsebo compare cora --methods vanilla,gsebo --seed 0

# What compiles many kernels goes first, each file in one process: later both have them.
test: $(VENV)/.installed-test
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m compiles
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not compiles"

# The exact tests and checksums as other processors would compute them; half an hour.
portable: $(VENV)/.installed-test
	$(BIN)/python scripts/portable.py

# Files, objects and command lines that are wrong, for ten minutes; says how to repeat
# what did harm.
fuzz: $(VENV)/.installed-test
	$(BIN)/python -m fuzz

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation as a site, in build/site; `make test` builds it too, and looks at it.
docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

readme: $(VENV)/.installed-test
	$(BIN)/python scripts/paper_preset.py
	$(BIN)/python scripts/tables.py
	$(BIN)/python scripts/pictures.py

# Runs the notebooks of docs/tutorials in full size: some minutes.
tutorials: $(VENV)/.installed-test
	$(BIN)/python scripts/tutorials.py

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks equality
	$(BIN)/python -m benchmarks timing
	$(BIN)/python -m benchmarks fit
	$(BIN)/python -m benchmarks memory
	$(BIN)/python -m benchmarks memory --hidden 128 --who ours torch --start warm
	$(BIN)/python -m benchmarks memory --dataset citeseer --hidden 16 128 --who ours torch --start warm
	$(BIN)/python -m benchmarks replicas
	$(BIN)/python -m benchmarks scale
	$(BIN)/python -m benchmarks amortised
	$(BIN)/python -m benchmarks amortised --fit pubmed
	$(BIN)/python -m benchmarks methods
	$(BIN)/python -m benchmarks report

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(INPUTS) | $(VENV)/bin/python
	@echo "Installing gsebo into $(VENV) (a minute or two, once)"
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(INPUTS) | $(VENV)/bin/python
	@echo "Installing gsebo and its test tools into $(VENV) (a minute or two, once)"
	$(PIP) -e ".[test]"
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
