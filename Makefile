# Everything runs from one virtual environment, made on first use: Python 3.11+, pip and make do.
#
#   make demo    the comparison on two real models, a few minutes
#   make test      the tests that need nothing but ONNX Runtime and OpenVINO
#   make test-all  these, and those of PyTorch, JAX, IREE, Triton, and of the shared tier on servers of
#                  their own (alone: make test-frameworks); the frameworks are a few gigabytes
#   make lint    ruff, mypy --strict, import-linter, hadolint, kubernetes-validate
#   make bench   the benchmarks; figures go to bench/results/
#   make clean   forget the environment and what the demo built

PYTHON ?= python3
VENV := .venv
FRAMEWORK_TESTS := tests/torch tests/jax tests/iree tests/shared tests/triton  # the longest first
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.PHONY: help demo test test-e2e test-unit test-others test-frameworks test-all lint bench clean $(FRAMEWORK_TESTS:tests/%=test-%)

help:
	@sed -n '2,$${/^#/!q;s/^# \{0,3\}//p;}' Makefile

demo: $(VENV)/demo.stamp
	$(PY) -m examples.demo

test: test-e2e test-unit test-others

test-unit: $(VENV)/test.stamp
	@echo "== tests/unit"; $(PY) -m pytest tests/unit

test-e2e: $(VENV)/test.stamp
	@echo "== tests/e2e"; $(PY) -m pytest tests/e2e

test-others: $(VENV)/test.stamp
	@echo "== the other tests"
	@$(PY) -m pytest --ignore=tests/unit --ignore=tests/e2e $(FRAMEWORK_TESTS:%=--ignore=%)

# A process for each, since JAX and others don't let a process fork that has imported them; with
# `make -j2` two at a time.
test-frameworks: $(FRAMEWORK_TESTS:tests/%=test-%)

$(FRAMEWORK_TESTS:tests/%=test-%): test-%: $(VENV)/frameworks.stamp
	@echo "== tests/$*"; $(PY) -m pytest $(PYTEST_OPTIONS) tests/$*

test-all: test test-frameworks

lint: $(VENV)/lint.stamp
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --explicit-package-bases examples
	$(VENV)/bin/lint-imports
	$(VENV)/bin/hadolint examples/deploy/Dockerfile*
	$(VENV)/bin/kubernetes-validate --strict --quiet examples/deploy/kubernetes/*.yaml

bench: $(VENV)/bench.stamp
	@set -e; for script in $(filter-out bench/harness.py bench/sides.py bench/flight_peers.py,$(wildcard bench/*.py)); do \
	    echo "== $$script"; \
	    PYTHONPATH=. $(PY) $$script --json bench/results/$$(basename $$script .py).json; \
	done

clean:
	rm -rf $(VENV) .demo

# A stamp says that a step is done for this pyproject.toml; each step can be repeated safely.
$(VENV)/base.stamp: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here; name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Trivet needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) -V 2>&1); name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "preparing $(VENV): Trivet, ONNX Runtime and OpenVINO; a minute or two, only once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --editable '.[onnxruntime,openvino]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/base.stamp
	@echo "adding pytest and what else the tests need"
	@$(PIP) install --group test
	@touch $@

# PyTorch's wheels on PyPI are built for CUDA; this index has those for CPUs. Where it can't be
# reached, pip would try for minutes.
TORCH_INDEX := download.pytorch.org
$(VENV)/frameworks.stamp: $(VENV)/test.stamp
	@echo "adding PyTorch, JAX, IREE, Triton, Valkey, and a server that speaks S3"
	@if $(PY) -c "import socket; socket.create_connection(('$(TORCH_INDEX)', 443), 5)" 2>/dev/null; \
	then $(PIP) install --extra-index-url https://$(TORCH_INDEX)/whl/cpu 'torch==2.13.0'; \
	else $(PIP) install 'torch==2.13.0'; fi
	@$(PIP) install --editable '.[torch,iree,jax,triton]'
	@$(PIP) install --group servers
	@touch $@

$(VENV)/lint.stamp: $(VENV)/test.stamp
	@echo "adding ruff, mypy, and what checks the files for containers"
	@$(PIP) install --group lint
	@touch $@

# rapidocr carries the model; its code is not run, so its dependencies stay away.
$(VENV)/demo.stamp: $(VENV)/base.stamp
	@echo "adding a package that carries a text recogniser"
	@$(PIP) install onnx
	@$(PIP) install --no-deps rapidocr
	@touch $@

$(VENV)/bench.stamp: $(VENV)/test.stamp
	@echo "adding diskcache, joblib and others, to compare with"
	@$(PIP) install --group bench
	@touch $@
