# make setup   a working checkout: virtual environment, development packages, the frontend's packages
# make demo    train an example, then open TensorBoard on it. No Node needed: the built tab is committed
#              (EXAMPLE=resnet18 or another of examples/, DEMO_STEPS=how many, DEMO_SERVE=0 only trains)
# make check   everything that only reads the code: ruff, mypy, tsc, Biome
# make test    all of it: the checks, pytest, vitest, the bundle and the tab in a real browser
# make bench   what watching and its records cost, beside other tools (which it installs); large models, many panels
# make matrix  the core of the tests under each combination of versions that is said to work (hours, 6 GB)
# make clean   all of the above away again; event files in runs/ stay
#
# Needs Python 3.10 or newer, and for test, check and setup Node 20.19 or newer with npm. Chromium and
# python3-venv are installed with apt-get if they are missing.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
VENV ?= .venv
# Plain "torch" may fetch a CUDA build of several GB, so one version whose CPU build pip finds here is
# pinned. Elsewhere say where the CPU builds are: make demo TORCH='torch --index-url https://...'
TORCH ?= torch==2.13.0

EXAMPLE ?= resnet18
DEMO_STEPS ?=
DEMO_SERVE ?= 1

RUN := $(VENV)/bin/python
# Modules are compiled when they are first imported: most of torch and transformers never are. Where the
# environment forbids to keep what was compiled, each of the many processes of the tests would do it again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
APT := DEBIAN_FRONTEND=noninteractive apt-get
FIND_CHROMIUM := command -v chromium chromium-browser google-chrome | grep -m 1 .
STATIC := tensorboard_torchexplorer/static

.PHONY: setup demo check test bench matrix clean python-check frontend-check vitest bundle-check chromium

setup: $(VENV)/.dev frontend/node_modules/.package-lock.json

demo: $(VENV)/.examples
	$(RUN) examples/$(EXAMPLE).py --logdir runs/$(EXAMPLE)/$$(date +%Y%m%d-%H%M%S) \
		$(if $(DEMO_STEPS),--steps $(DEMO_STEPS))
ifneq ($(DEMO_SERVE),0)
	$(RUN) -m tensorboard_torchexplorer show runs/$(EXAMPLE)
endif

check: python-check frontend-check

# What only needs to be set up and read goes on two cores at once. pytest comes last, so that its summary
# closes the output. Many of its tests wait for processes of their own, so two workers leave two cores idle.
# tests/conftest.py says which files begin.
test:
	$(MAKE) --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) check bundle-check vitest chromium
	cd frontend && PYTHON=$(abspath $(RUN)) CHROMIUM=$${CHROMIUM:-$$($(FIND_CHROMIUM))} npm run e2e
	$(RUN) -m pytest -n 4 --dist loadfile --no-loadscope-reorder

python-check: $(VENV)/.dev
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

frontend-check: frontend/node_modules/.package-lock.json
	cd frontend && npm run check

vitest: frontend/node_modules/.package-lock.json
	cd frontend && npm test

# The committed bundle is what a fresh build of the sources gives.
bundle-check: frontend/node_modules/.package-lock.json
	cd frontend && OUT_DIR=dist npm run build
	diff -rq frontend/dist $(STATIC) || { echo "$(STATIC) is stale: cd frontend && npm run build"; exit 1; }

bench: $(VENV)/.peers frontend/node_modules/.package-lock.json chromium
	$(RUN) benchmarks/overhead.py
	$(RUN) -m benchmarks.records
	$(RUN) -m benchmarks.tab
	$(RUN) -m benchmarks.panels

matrix:
	$(PYTHON) scripts/matrix.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf frontend/node_modules frontend/dist frontend/test-results frontend/playwright-report
	find . -name __pycache__ -prune -exec rm -rf {} +

# --- What is set up once; each stamp lies inside what it speaks of. ---

$(VENV)/.torch:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -c 'import ensurepip, venv' || { $(APT) update && $(APT) install -y python3-venv; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	touch $@

$(VENV)/.examples: $(VENV)/.torch setup.py pyproject.toml
	$(PIP) --editable '.[examples]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch setup.py pyproject.toml
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.examples

# The tools that `make bench` compares with. The first needs graphviz for its own pictures.
$(VENV)/.peers: $(VENV)/.dev
	test -e /usr/include/graphviz/cgraph.h || { $(APT) update && $(APT) install -y graphviz libgraphviz-dev; }
	$(PIP) torchexplorer==1.1.2 wandb
	touch $@

# npm writes this file at the end of an install.
frontend/node_modules/.package-lock.json: frontend/package-lock.json frontend/package.json
	cd frontend && npm ci
	touch $@

# After the other place that may call apt-get, which knows but one caller at a time.
chromium: | $(VENV)/.torch
	[ -n "$${CHROMIUM:-}" ] || $(FIND_CHROMIUM) >/dev/null || { $(APT) update && $(APT) install -y chromium; }
