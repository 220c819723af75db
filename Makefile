# Everything runs inside .venv; `make env` makes it, and every other target needs only Python 3.11+ and make.
VENV   ?= .venv
PYTHON ?= python3
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

.PHONY: env demo test test-slow soak lint bench clean

env: $(STAMP)

$(STAMP): pyproject.toml tests/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "repobuild needs Python 3.11 or newer; name one with: make env PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint tests/constraints.txt --editable '.[cpu,sklearn,onnx,torch,dev]'
	@touch $@

demo: env
	$(BIN)/python recipes/risk_model/train.py
	$(BIN)/repobuild convert recipes/risk_model --trust pickle --repository build/demo/repository

# The real tritonserver that the bundled one is compared with; a machine that cannot have it skips those tests.
TRITON = build/tritonserver/.installed

$(TRITON): tests/serve/differential/requirements.txt tests/serve/differential/install.py | $(STAMP)
	$(BIN)/python tests/serve/differential/install.py build/tritonserver

test: env $(TRITON)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-slow: env $(TRITON)
	$(BIN)/python -m pytest -m slow

MINUTES ?= 10
soak: env
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --mode explicit --report build/soak.json
	$(BIN)/python -m tests.soak --minutes $$(( ($(MINUTES) + 4) / 5 )) --mode poll --report build/soak-poll.json

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: env
	$(BIN)/python -m pip install --quiet --constraint tests/constraints.txt --editable '.[cpu,sklearn,onnx,torch,dev,bench]'
	for name in risk_model cnn footprint stages; do $(BIN)/python benchmarks/serving/$$name.py || exit 1; done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
