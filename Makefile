# The thin front: everything here can also be run by hand, see CONTRIBUTING.md.
.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint types bench docs-check clean clean-venv

VENV := .venv
BIN := $(VENV)/bin
CODE := src tests bench noxfile.py
export OMP_NUM_THREADS ?= 1
export POLARS_MAX_THREADS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# A stamp for each set of extras, renewed when the requirements change.
$(VENV)/.installed: pyproject.toml constraints.txt scripts/venv.sh
	@scripts/venv.sh torch || { echo "PyTorch cannot be installed here; the demo leaves out what needs it" >&2; scripts/venv.sh ""; }
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt scripts/venv.sh Makefile
	@scripts/venv.sh dev,torch,huggingface,lightning,onnx,boost,postgres
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed ## five policies on a generated workload (demo/report.html), real jobs on this machine, an elastic training
	@echo "running five policies with three seeds on 2,000 generated jobs" >&2
	@$(BIN)/cotenant demo -o demo --force --live

test: $(VENV)/.installed-dev lint types ## everything that must hold before a change is merged
	$(BIN)/python -m pytest -n 2

test-long: $(VENV)/.installed-dev ## thousands of lives of the live scheduler on a hostile machine, kills by the hundred, elastic matrix; an hour
	COTENANT_SEEDS=$${COTENANT_SEEDS:-2000} $(BIN)/python -m pytest -n 2 -q tests/live_dst
	COTENANT_ELASTIC_KILLS=$${COTENANT_ELASTIC_KILLS:-50} $(BIN)/python -m pytest -q tests/elastic/test_storm.py
	COTENANT_ELASTIC_LONG=1 $(BIN)/python -m pytest -q tests/elastic/test_matrix.py tests/elastic/test_order_ddp.py tests/elastic/test_sharded.py
	COTENANT_ELASTIC_KILLS=$${COTENANT_SHARDED_KILLS:-24} $(BIN)/python -m pytest -q tests/elastic/test_sharded.py -k killed_at_any
	COTENANT_TWIN_LONG=1 $(BIN)/python -m pytest -q tests/twin/test_live.py
	COTENANT_STORM=$${COTENANT_STORM:-200} $(BIN)/python -m pytest -q tests/live/test_storm.py

lint: $(VENV)/.installed-dev ## style and formatting
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(VENV)/.installed-dev ## static types
	$(BIN)/mypy

bench: $(VENV)/.installed-dev ## measure against the budgets; minutes, on an idle machine
	$(BIN)/python -m bench

docs-check: $(VENV)/.installed-dev ## links, commands and names in the documentation
	$(BIN)/python -m pytest -q tests/test_docs.py

clean: ## remove what the other targets wrote, the environment apart
	rm -rf demo out dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .nox
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

clean-venv: ## remove the environment too
	rm -rf $(VENV)
