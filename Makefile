# torchmatrix: `make matrix` measures what matrix.toml says on this machine and writes reports/index.html.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TM     := $(BIN)/torchmatrix
UV     := $(BIN)/python -m uv
ARGS   ?=
PYTEST := $(BIN)/python -m pytest --dist loadgroup

# Where byte code isn't kept, each command that the tests start compiles all that it imports: two seconds each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help matrix demo plan report doctor test test-all thorough faults gpu proof causal-types twice versions check docs clean

help:            ## show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 16

matrix: $(TM)    ## measure every cell that this machine can run; continues after an interruption
	@$(TM) run $(ARGS)

demo: $(TM)      ## measure a small part of it: ResNet-50 on one stack, in a few minutes
	@$(TM) run 'torch2.7.1-*' 'torch2.5.1-rocm*' --where model=resnet50 --where compile=false --launches 2 $(ARGS)

plan: $(TM)      ## show what would run, and what is skipped and why
	@$(TM) plan $(ARGS)

report: $(TM)    ## render the newest run again
	@$(TM) report $(ARGS)

doctor: $(TM)    ## check what this machine has and lacks, with fixes
	@$(TM) doctor $(ARGS)

test: $(VENV)/dev ## unit tests, the workload on the CPU, the local engine, real containers where an engine answers
	@$(PYTEST) -n 3 -m 'not thorough' $(ARGS)

test-all: test thorough ## all tests

thorough: $(VENV)/dev ## what `make test` leaves out: oldest and newest PyTorch, whole nights, vendors' images, a browser
	@$(PYTEST) -n 5 -m thorough $(ARGS)

versions: $(TM) ## measure PyTorch 1.12 to the newest on the CPU, in containers (25 GB of images; an hour or more)
	@$(TM) reproduce versions --output reports/versions.html $(ARGS)

faults: $(VENV)/dev ## break the tool in all ways known, and see that nothing is lost (root for all of them; 15 minutes)
	@cd tests && $(abspath $(BIN))/python -m faults $(ARGS)

gpu: $(VENV)/dev ## test on this machine's GPU, with the python3 that has PyTorch (GPU_PYTHON names another; eight minutes)
	@$(PYTEST) -n 0 -m gpu tests/gpu $(ARGS)

proof: $(VENV)/dev ## test the instrument with real training: A/A, a negative control, a bare loop (about half an hour)
	@cd tests && PYTHONPATH=bench:../images/workload $(abspath $(BIN))/python -m proof.table $(ARGS)
	@$(BIN)/python -m pytest tests/proof/test_instrument.py -s

causal-types: $(VENV)/dev ## train and generate with every causal type of transformers, tiny (STACK_PYTHON names the Python that has it; half an hour)
	@cd tests && PYTHONPATH=bench:../images:../images/workload $(abspath $(BIN))/python -m causal_types $(or $(STACK_PYTHON),python3) $(ARGS)

twice: $(VENV)/dev ## build one lock in two empty Docker engines and compare every file (root, 12 GB, about ten minutes)
	@$(BIN)/python -m pytest tests/proof/test_two_builds.py -s $(ARGS)

check: $(VENV)/dev ## check format, lint, types and the direction of imports
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: $(VENV)/docs ## build docs/ as a website in dist/docs/ and check all links
	@$(BIN)/python tests/example.py
	@$(BIN)/python docs/site/reference.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml
	@echo dist/docs/index.html

clean:           ## remove the tool's own virtualenv (results stay)
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "error: $(PYTHON) is older than 3.10; hint: make PYTHON=/path/to/newer/python3" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "hint: on Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || { rm -rf $(VENV); exit 2; }

$(TM): pyproject.toml | $(BIN)/python
	@$(UV) pip install --quiet --python $(BIN)/python --editable .
	@touch $(TM)

$(VENV)/docs: pyproject.toml | $(BIN)/python
	@$(UV) pip install --quiet --python $(BIN)/python --editable '.[docs]'
	@touch $(TM) $(VENV)/docs

$(VENV)/dev: pyproject.toml | $(BIN)/python
	@$(UV) pip install --quiet --python $(BIN)/python --editable '.[dev]'
	@touch $(TM) $(VENV)/dev
