# The commands of this checkout: `make demo` and `make test` need nothing but Python 3.11 or newer.
# Written for GNU make 3.81, which is what macOS has. Variables to set on the command line:
#   PYTHON=python3.13   the Python that makes .venv (otherwise the newest of 3.11-3.14 found, then uv)
#   WORKERS=4           how many test processes
#   ARGS="-k rope -x"   more arguments for pytest
#   PROMPTS=20          held-out prompts per task in `make accuracy`

SHELL := /bin/sh
VENV ?= .venv
WORKERS ?= 2
PYTHON ?=
ARGS ?=
PROMPTS ?= 100
PIP_FLAGS ?= -qq

PY := $(VENV)/bin/python
PINS := pyproject.toml constraints.txt

# MLX's Linux wheel carries the reference BLAS. OpenBLAS loaded first makes matrix products 30 times
# faster; with several test processes each gets one thread.
ifeq ($(shell uname -s),Linux)
OPENBLAS ?= $(firstword $(wildcard /usr/lib/$(shell uname -m)-linux-gnu/openblas-pthread/libopenblas.so.0))
ifneq ($(OPENBLAS),)
BLAS := LD_PRELOAD="$(OPENBLAS)$${LD_PRELOAD:+:$$LD_PRELOAD}"
else
BLAS_NOTE := @echo "Note: OpenBLAS was not found, matrix products are 30 times slower without it (Debian, Ubuntu: apt-get install libopenblas0-pthread)." >&2
endif
endif
TEST_ENV := $(BLAS) OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
PYTEST := $(TEST_ENV) $(PY) -m pytest

.PHONY: help demo test test-reference test-wheel accuracy lint format types check clean distclean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:
	@echo "make demo            show the bundled model at work (downloads packages once, no model)"
	@echo "make test            the tests, in minutes (downloads packages once)"
	@echo "make test-reference  compare with torch + transformers (installs them)"
	@echo "make test-wheel      install the wheel with what it declares into a fresh environment"
	@echo "make accuracy        measure the demo model: reference, ours, ours converted"
	@echo "make types lint      mypy; ruff and the import rules"
	@echo "make format          let ruff rewrite the code's layout"
	@echo "make check           all of the above but accuracy and format"
	@echo "make clean           remove caches and build products (distclean: .venv too)"

demo: $(VENV)/.runtime
	$(BLAS_NOTE)
	@$(BLAS) $(VENV)/bin/mlx-diffusiongemma demo

test: $(VENV)/.dev
	$(BLAS_NOTE)
	@$(PYTEST) -n $(WORKERS) --dist loadfile $(ARGS)

# Without torch or transformers this fails: pytest stops before it collects anything.
test-reference: $(VENV)/.reference
	$(BLAS_NOTE)
	@$(PYTEST) -m reference -n $(WORKERS) --dist loadfile $(ARGS)

test-wheel: $(VENV)/.dev
	@$(PYTEST) -m slow tests/packaging $(ARGS)

# Accuracy and steps of the bundled model: transformers, this runtime, this runtime after convert.
EVALUATE := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PY) -m tests.demo_model.evaluate --prompts $(PROMPTS)

accuracy: $(VENV)/.reference
	@$(BLAS) $(EVALUATE) --model mlx_diffusiongemma/demo --runtime reference --json build/accuracy/reference.json
	@$(BLAS) $(EVALUATE) --model mlx_diffusiongemma/demo --runtime ours --json build/accuracy/ours.json
	@rm -rf build/accuracy/converted
	@$(VENV)/bin/dgemma convert demo -o build/accuracy/converted -q
	@$(BLAS) $(EVALUATE) --runtime converted --converted build/accuracy/converted --json build/accuracy/converted.json

types: $(VENV)/.dev
	@$(PY) -m mypy

lint: $(VENV)/.dev
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/lint-imports

format: $(VENV)/.dev
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

check: test demo test-reference test-wheel types lint

clean:
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV)

# --- the environment. Stamp files keep a second run fast; a change of the pins installs again. ---

FITS := import sys, platform, venv, ensurepip; \
	mac_ok = sys.platform != "darwin" or platform.machine() == "arm64"; \
	sys.exit(not (mac_ok and (3, 11) <= sys.version_info[:2] < (3, 15)))

$(PY):
	@found=; \
	for candidate in $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3 python); do \
		if "$$candidate" -c '$(FITS)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	done; \
	if [ -n "$$found" ]; then \
		echo "Making $(VENV) with $$found ($$("$$found" -c 'import platform; print(platform.python_version())'))" >&2; \
		"$$found" -m venv --clear "$(VENV)"; \
	elif [ -z "$(PYTHON)" ] && command -v uv >/dev/null 2>&1; then \
		echo "Making $(VENV) with uv" >&2; \
		uv venv --quiet --clear --python '>=3.11,<3.15' "$(VENV)"; \
	else \
		echo "$(if $(PYTHON),$(PYTHON) does not fit,No Python that fits was found): install Python 3.11-3.14 with its venv module (on a Mac the arm64 build, on Debian and Ubuntu also python3-venv), or uv." >&2; \
		exit 1; \
	fi

COMMA := ,

# An environment that uv made has no pip of its own at first.
define install
@if $(PY) -c 'import pip' 2>/dev/null; then \
	$(PY) -m pip install $(PIP_FLAGS) --disable-pip-version-check -c constraints.txt -e '$(1)'; \
else \
	uv pip install --quiet --python $(PY) -c constraints.txt -e '$(1)'; \
fi
endef

$(VENV)/.runtime: $(PINS) | $(PY)
	@echo "Installing what it needs to run into $(VENV)" >&2
	$(call install,.)
	@touch $@

$(VENV)/.dev: $(PINS) | $(PY)
	@echo "Installing what it needs to run and to be tested into $(VENV)" >&2
	$(call install,.[dev])
	@touch $(VENV)/.runtime $@

$(VENV)/.reference: $(PINS) | $(PY)
	@echo "Installing torch and transformers too into $(VENV) (the largest download)" >&2
	$(call install,.[dev$(COMMA)reference])
	@touch $(VENV)/.runtime $(VENV)/.dev $@
