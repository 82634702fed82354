# `make demo` and `make test` do all of their own set-up. Installing again is quick when no
# requirement changed: the stamp of an installation carries the hash of what was installed.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
hash = $(shell cat $(1) | sha256sum | cut -c1-16)
APP_FILES := requirements/base.txt requirements/env.txt requirements/ml.txt
APP_STAMP := $(VENV)/installed-app-$(call hash,$(APP_FILES))
DEV_STAMP := $(VENV)/installed-dev-$(call hash,$(APP_FILES) requirements/dev.txt)
# Rivals of a benchmark, in an environment of their own (docs/dependencies.md says why).
RIVALS := $(VENV)/bench
RIVALS_STAMP := $(RIVALS)/installed-$(call hash,requirements/bench.txt)
AUDIT := $(VENV)/audit
AUDIT_STAMP := $(AUDIT)/installed-$(call hash,requirements/audit.txt)
TRL := $(VENV)/bench-training
TRL_STAMP := $(TRL)/installed-$(call hash,requirements/bench-training.txt)
PIP := $(PY) -m pip install -qq --disable-pip-version-check

# Flags of `make demo`: EXIT=1 ends after the climb, FULL=1 takes more tasks and steps, PORT=8001.
DEMO_FLAGS := $(if $(EXIT),--exit) $(if $(FULL),--full) $(if $(PORT),--port $(PORT))
# Tests run in JOBS processes, each file in one of them; JOBS=0 runs them in one, as a debugger wants.
JOBS ?= 2
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: audit sbom screenshots help demo up install install-dev tools test test-all fuzz-api lint format types contracts bench kills bench-rivals bench-trl example try-public-envs lock clean distclean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(APP_STAMP) ## watch a small model climb (EXIT=1, FULL=1, PORT=n)
	@$(PY) manage.py demo $(DEMO_FLAGS)

up: $(APP_STAMP) ## run everything on the data folder (PORT=n)
	@$(PY) manage.py up $(if $(PORT),--port $(PORT))

install: $(APP_STAMP) ## install what the product needs
install-dev: $(DEV_STAMP) ## install what tests, lint and types need as well

test: $(DEV_STAMP) tools ## run the tests, those that failed once more alone (ARGS="tests/jobs -x")
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(PYTEST) || { [ $$? = 1 ] && .ci/alone $(PY); }

test-all: $(DEV_STAMP) tools ## run the slow tests as well
	@$(PYTEST) -m ""

fuzz-api: $(DEV_STAMP) ## send requests made from the document of the API (CASES=20000)
	@API_CASES=$(or $(CASES),20000) $(PY) -m pytest tests/api/test_cases.py -m slow -s $(ARGS)

lint: $(DEV_STAMP) contracts ## style of code and templates
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@find templates orchestrator -name '*.html' -print0 | xargs -0 -r $(VENV)/bin/djade --check --target-version 5.2

format: $(DEV_STAMP) ## rewrite code in the project's style
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

types: $(DEV_STAMP) ## check the types of the whole tree
	@$(PY) -m mypy .

contracts: $(DEV_STAMP) ## check the direction of imports
	@$(VENV)/bin/lint-imports

bench: $(DEV_STAMP) $(if $(filter optimizer optimizer_llm,$(or $(NAME),optimizer)),bench-rivals) $(if $(filter training,$(or $(NAME),training)),bench-trl) ## print a benchmark's figures (NAME=live; most without a name; ARGS="--worlds 20")
	@BENCH_PYTHON=$(abspath $(RIVALS))/bin/python TRL_PYTHON=$(abspath $(TRL))/bin/python $(PY) -m benchmarks $(NAME) $(ARGS)

kills: $(DEV_STAMP) ## strike the whole product at random moments (STACK=scale MOMENTS=40 SEED=1 ONLY=disk,worker OUT=var/kills)
	@$(PY) -m tests.kills --stack $(or $(STACK),embedded) --moments $(or $(MOMENTS),40) --seed $(or $(SEED),1) --only "$(ONLY)" --out $(or $(OUT),var/kills) --keep

bench-rivals: $(RIVALS_STAMP) ## install the optimisers that ours is measured against

bench-trl: $(TRL_STAMP) ## install the trainer that ours is measured against

try-public-envs: $(APP_STAMP) ## run public environments from a checkout (OPENENV=folder)
	@test -n "$(OPENENV)" || { echo "name a checkout of github.com/huggingface/OpenEnv: make $@ OPENENV=folder" >&2; exit 1; }
	@$(PY) scripts/try_public_envs.py "$(OPENENV)"

example: $(APP_STAMP) ## load an example (NAME=questions, RUN=1; lists them without a name)
	@$(PY) manage.py load_example $(NAME) $(if $(RUN),--run)

screenshots: $(DEV_STAMP) tools ## photograph a running server into docs/images (URL=…, the password in SWITCHBACK_PASSWORD)
	@$(PY) scripts/screenshots.py --url "$(or $(URL),http://127.0.0.1:8000)"

sbom: $(AUDIT_STAMP) ## write a bill of materials, CycloneDX JSON (OUT=sbom.json)
	@$(PY) -m scripts.sbom $(AUDIT)/bin/cyclonedx-py "$(or $(OUT),sbom.json)"

audit: $(AUDIT_STAMP) ## look for known weaknesses in what is pinned
	@$(PY) -m scripts.audit $(AUDIT)/bin/pip-audit

lock: $(DEV_STAMP) ## pin what is installed
	@$(PY) requirements/lock.py

tools: ## programs that tests need and pip has not: a Chromium, bubblewrap
	@.ci/tools

clean: ## remove what tools left behind, not the data
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache test-results
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove the installation too
	@rm -rf $(VENV)

$(APP_STAMP): | $(PY)
	@echo "installing the product into $(VENV) (a minute or two)"
	@$(PIP) $(addprefix -r ,$(APP_FILES))
	@rm -f $(VENV)/installed-*; touch $@

$(DEV_STAMP): | $(PY)
	@echo "installing the product and what its tests need into $(VENV) (a few minutes)"
	@$(PIP) $(addprefix -r ,$(APP_FILES)) -r requirements/dev.txt
	@rm -f $(VENV)/installed-*; touch $@ $(APP_STAMP)

$(RIVALS_STAMP): | $(PY)
	@echo "installing the rivals of the benchmark into $(RIVALS)"
	@$(PY) -m venv $(RIVALS)
	@$(RIVALS)/bin/python -m pip install -qq --disable-pip-version-check -r requirements/bench.txt
	@rm -f $(RIVALS)/installed-*; touch $@

$(AUDIT_STAMP): | $(PY)
	@echo "installing what looks at our dependencies into $(AUDIT)"
	@$(PY) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install -qq --disable-pip-version-check -r requirements/audit.txt
	@rm -f $(AUDIT)/installed-*; touch $@

# Over the packages of the product: torch and transformers must be the same for both.
$(TRL_STAMP): $(DEV_STAMP)
	@echo "installing TRL for the benchmark into $(TRL)"
	@$(PY) -m venv $(TRL)
	@$(PY) -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > "$$($(TRL)/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/product.pth"
	@$(TRL)/bin/python -m pip install -qq --disable-pip-version-check -r requirements/bench-training.txt
	@rm -f $(TRL)/installed-*; touch $@

$(PY):
	@for python in "$${PYTHON:-python3}" python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    "$$python" -m venv $(VENV) && exit 0; \
	    rm -rf $(VENV); \
	    echo "$$python cannot make a virtual environment: install its venv package" >&2; \
	    echo "(Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; \
	  fi; \
	done; \
	echo "Python 3.11 or newer is needed and was not found." >&2; \
	echo "Install it, or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1
export PYTHON
