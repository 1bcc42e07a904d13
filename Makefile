# `make quickstart` shows everything from a fresh clone, `make test` tests it; both install first.

SUPPORTED = import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c '$(SUPPORTED)' 2> /dev/null && echo $$python && break; done)
# Containers often set it, and each process would compile all of TensorFlow anew: eight seconds.
unexport PYTHONDONTWRITEBYTECODE
# A file's tests run in one process, so that each fixture of a file is made once.
PYTEST = .venv/bin/python -m pytest -rsfE -n logical --maxprocesses 4 --dist loadfile --durations=25
# what runs on every backend of Keras
BACKEND_TESTS = tests/backend tests/checks tests/convert tests/layers tests/models tests/decoding \
	tests/test_imports.py tests/training/test_data_parallel.py tests/training/test_losses.py \
	tests/training/test_metrics.py tests/training/test_micro_batches.py \
	tests/training/test_model_parallel.py \
	tests/training/test_one_device.py tests/training/test_schedules.py tests/test_without_tensorflow.py

.PHONY: help install quickstart test test-slow test-docs test-notebooks test-types test-package \
	test-lowest test-beam test-contract test-backends test-backends-short test-jax test-torch test-jax-short \
	test-torch-short benchmark docs lint format clean

help:
	@echo "make quickstart     train, translate and export a small model, in minutes"
	@echo "make test           the tests"
	@echo "make test-slow      the tests that take minutes"
	@echo "make test-docs      run the commands and programs of README.md and docs/"
	@echo "make test-notebooks the notebooks, with little training"
	@echo "make test-types     check the type annotations with mypy"
	@echo "make test-package   build the wheel and try it in an empty virtual environment"
	@echo "make test-lowest    the tests with the lowest versions that setup.cfg allows"
	@echo "make install        install at once what CI needs, but for the notebooks"
	@echo "make test-beam      the pipelines of Apache Beam, in an environment of their own"
	@echo "make test-contract  TensorFlow Serving's interface, of any server (export/README.md)"
	@echo "make test-backends  the tests of layers, models and decoding on JAX and PyTorch"
	@echo "make test-backends-short  one test of each layer, model, search and loss on these"
	@echo "make benchmark      compare speed with other libraries; set KERAS_TRANSFORMER_DATA to the text,"
	@echo "                    RUN=DIR to a run trained on it, and EXPORT=DIR to an export to serve"
	@echo "make docs           build the documentation site into site/; a warning is an error"
	@echo "make lint           check the code with ruff"
	@echo "make format         format the code and fix what ruff can fix"
	@echo "make clean          remove the virtual environment and caches"

quickstart: .venv/installed
	.venv/bin/keras-transformer quickstart

test: .venv/installed
	$(PYTEST)

test-slow: .venv/installed-notebooks .venv/installed-backends
	$(PYTEST) -m slow
	KERAS_BACKEND=jax $(PYTEST) -m slow tests/training/test_workers.py

test-docs: .venv/installed-notebooks .venv/installed-docs
	$(PYTEST) --dist load -m "slow or not slow" tests/test_documentation.py \
		tests/test_documentation_site.py

# the notebooks in short form; `make test-slow` runs them whole
test-notebooks: .venv/installed-notebooks
	.venv/bin/python notebooks/execute.py --short

test-types: .venv/installed
	.venv/bin/mypy
	.venv/bin/python -m pytest -rsfE -m "slow or not slow" tests/test_types.py

test-package: .venv/installed
	.venv/bin/python -m pytest -rsfE -m "slow or not slow" --durations=5 tests/test_package.py

# what a change of Keras, TensorFlow or NumPy would break first
test-lowest: .venv/installed
	.venv/bin/python -m pip install --quiet uv
	.venv/bin/uv venv --quiet --clear .venv/lowest
	.venv/bin/uv pip install --quiet --python .venv/lowest/bin/python --resolution lowest-direct \
		--editable '.[dev]'
	.venv/lowest/bin/python -m pytest -rsfE tests/layers tests/models tests/decoding tests/tokenizers \
		tests/cli tests/translation/test_translator.py tests/export/test_saved_model.py

# Apache Beam takes older versions of what others require, such as protobuf 6
test-beam: .venv/installed
	.venv/bin/python -m pip install --quiet uv
	.venv/bin/uv venv --quiet --clear .venv/beam
	.venv/bin/uv pip install --quiet --python .venv/beam/bin/python --editable '.[dev,beam]'
	.venv/beam/bin/python -m pytest -rsfE -m "slow or not slow" tests/pipelines

# tests the server in KERAS_TRANSFORMER_SERVER and KERAS_TRANSFORMER_SERVER_GRPC, or else ours
test-contract: .venv/installed
	.venv/bin/python -m pytest -rsfE tests/serving/test_contract.py

test-backends: test-jax test-torch
test-backends-short: test-jax-short test-torch-short

# JAX keeps what it has compiled: later runs take a third of the time
test-jax test-jax-short: export JAX_COMPILATION_CACHE_DIR ?= $(HOME)/.cache/keras_transformer/jax
test-jax test-jax-short: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
test-jax test-jax-short: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES = -1
test-jax test-torch: test-%: .venv/installed-backends
	KERAS_BACKEND=$* $(PYTEST) $(BACKEND_TESTS)

# tests/backends.txt has a test in each line; pytest fails where it does not exist
test-jax-short test-torch-short: test-%-short: .venv/installed-backends
	KERAS_BACKEND=$* $(PYTEST) @tests/backends.txt

benchmark: .venv/installed-benchmarks
	.venv/bin/python benchmarks/training.py --preset tiny
	.venv/bin/python benchmarks/training.py --preset base --steps 4
	.venv/bin/python benchmarks/scaling.py
	.venv/bin/python benchmarks/startup.py
	.venv/bin/python benchmarks/distribution.py
	.venv/bin/python benchmarks/attention.py
	.venv/bin/python benchmarks/attention_translation.py
	.venv/bin/python benchmarks/growth.py
	$(if $(RUN),.venv/bin/python benchmarks/decoding.py $(RUN))
	$(if $(RUN),.venv/bin/python benchmarks/startup.py --translate $(RUN))
	$(if $(EXPORT),.venv/bin/python benchmarks/serving.py $(EXPORT) --soak 30)

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

lint: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

format: .venv/installed
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	rm -rf .venv .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(SUPPORTED)' 2> /dev/null || { \
		echo "Expected Python 3.10 to 3.13, for which tensorflow-text has wheels." \
			"Found: $$($(or $(PYTHON),python3) --version 2>&1)." \
			"Install one of them, or name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
	.venv/bin/python -m pip install --quiet --upgrade pip  # the pip of Python 3.10 finds no solution

# What CI needs, all at once: each installation looks for all versions anew. Modules are compiled when
# they are first imported. The notebooks' scikit-learn comes later: it slows each import of Keras.
install: .venv/bin/python
	.venv/bin/python -m pip install --no-compile --editable '.[dev,docs,test-backends]'
	@touch .venv/installed .venv/installed-docs .venv/installed-backends

.venv/installed: .venv/bin/python setup.cfg pyproject.toml
	.venv/bin/python -m pip install --editable '.[dev]'
	@touch $@

.venv/installed-docs: .venv/installed
	.venv/bin/python -m pip install --editable '.[dev,docs]'
	@touch $@

.venv/installed-notebooks: .venv/installed
	.venv/bin/python -m pip install --editable '.[dev,notebooks]'
	@touch $@

.venv/installed-benchmarks: .venv/installed benchmarks/requirements.txt
	.venv/bin/python -m pip install --requirement benchmarks/requirements.txt
	@touch $@

.venv/installed-backends: .venv/installed
	.venv/bin/python -m pip install --editable '.[dev,test-backends]'
	@touch $@
