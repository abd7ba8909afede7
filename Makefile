# rlmem: `make` lists what there is.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow check format bench-defaults bench-accuracy accuracy-report bench-lean lean-report bench-store clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## a .venv with everything, pinned by constraints.txt; fast when already done

$(STAMP): pyproject.toml constraints.txt setup.py src/rlmem/lean/kernels.c
	@command -v $(PYTHON) >/dev/null || { echo "rlmem needs $(PYTHON); say PYTHON=… for another" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade pip
	# torch first and by its exact version: any other way may pull gigabytes of CUDA.
	$(BIN)/python -m pip install -qq --constraint constraints.txt $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: setup ## plan, check and compare the bundled mine: 209 GiB that nobody computed
	@for words in "machine" "plan examples/open_pit/full.yaml" \
	  "check examples/open_pit/full.yaml examples/open_pit/as_documented.py" \
	  "compare $(wildcard examples/open_pit/*.yaml)"; do \
	  printf '\n$$ rlmem %s\n' "$$words"; \
	  $(BIN)/rlmem $$words || [ $$? -eq 1 ] || exit 1; \
	done

test: setup ## the tests, in a few minutes
	$(BIN)/python -m pytest -q

test-slow: setup ## the long tests
	$(BIN)/python -m pytest -q -m slow

check: setup ## format, lint, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-defaults: setup ## meter the process figures that plans assume
	$(BIN)/python benchmarks/defaults/measure_defaults.py

bench-accuracy: setup ## predicted against measured over many real runs: an hour, goes on where it was stopped
	$(BIN)/python benchmarks/accuracy/measure_accuracy.py

accuracy-report: setup ## write docs/accuracy.md and its picture from the results
	$(BIN)/python benchmarks/accuracy/report.py

bench-lean: setup ## lean buffers beside stock ones and their rivals: an hour; the rivals come from PyPI
	$(BIN)/python -m pip install -qq --no-deps --target $(VENV)/rivals --requirement benchmarks/lean/requirements.txt
	PYTHONPATH=$(VENV)/rivals $(BIN)/python benchmarks/lean/measure_atari.py --policy random
	PYTHONPATH=$(VENV)/rivals $(BIN)/python benchmarks/lean/measure_atari.py --policy skilled --only rlmem sb3 extra
	$(BIN)/python benchmarks/lean/measure_cases.py
	$(BIN)/python benchmarks/lean/measure_training.py
	$(BIN)/python benchmarks/lean/measure_design.py

lean-report: setup ## write docs/lean_benchmark.md from the results
	$(BIN)/python benchmarks/lean/report.py

bench-store: setup ## what saving a stock replay buffer costs, beside other ways; and how fast content is named
	$(BIN)/python benchmarks/store/measure_store.py
	$(BIN)/python benchmarks/store/measure_hashes.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
