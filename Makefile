# Everything here needs only Python (3.10 or newer), pip and make; the rest goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NODE := $(shell command -v node 2>/dev/null)

.DEFAULT_GOAL := help
# The tests start hundreds of Python programs, which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
.DELETE_ON_ERROR:
.PHONY: help demo test test-all check bench bench-gpu bench-index bench-ingest bench-judge bench-load bench-memory bench-store bench-units bench-viewer fuzz clean pictures compiler browser

help: ## list the targets
	@sed -n 's/^\([a-z][a-z_-]*\):[^#]*## /\1: /p' $(MAKEFILE_LIST) | awk -F': ' '{printf "  make %-8s %s\n", $$1, $$2}'

ifneq ($(NODE),)
js-tests = $(NODE) --test tests/js/*/*.test.*
else
js-tests = @echo "make: no node: the tests in tests/js are left out" >&2
endif

demo: .venv/.installed compiler ## record a small training run that overflows in fp16, print the summary, write demo/report.html
	$(BIN)/stepscope demo

test: check browser compiler ## the checks, and every test that is not marked slow (minutes)
	$(BIN)/python -m pytest -n auto -m "not slow and not ecosystem"
	$(js-tests)

test-all: check browser compiler ## every check and every test (an hour)
	$(BIN)/python -m pytest -n auto
	$(js-tests)

check: .venv/.installed-test ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers 2

bench: .venv/.installed-test compiler ## measure what recording costs and how fast a log opens
	$(BIN)/python -m tests.benchmarks.bench_import
	$(BIN)/python -m tests.benchmarks.bench_launches
	$(BIN)/python -m tests.benchmarks.bench_ring
	$(BIN)/python -m tests.benchmarks.bench_values
	$(BIN)/python -m tests.benchmarks.bench_programs
	$(BIN)/python -m tests.benchmarks.bench_stats
	$(BIN)/python -m tests.benchmarks.bench_lifetimes
	$(BIN)/python -m tests.benchmarks.bench_open
	$(BIN)/python -m tests.benchmarks.bench_first_page

bench-judge: .venv/.installed-test compiler ## what a judged step costs (minutes)
	$(BIN)/python -m tests.benchmarks.bench_judge

bench-memory: .venv/.installed-test ## how fast ten million births and deaths are queried and shown (minutes)
	$(BIN)/python -m tests.benchmarks.bench_memory
	$(BIN)/python -m tests.benchmarks.bench_memory_pages 1000 5000

bench-index: .venv/.installed-test ## index of a log of 1,000,000 launches with 5,000,000 value rows (minutes)
	$(BIN)/python -m tests.benchmarks.bench_index

bench-ingest: .venv/.installed-test ## logs of 100 MB and 1 GB read by stepscope and by tlparse, and all pages of them (minutes)
	$(BIN)/python -m tests.benchmarks.bench_ingest

bench-units: .venv/.installed-test ## a STORE of 64 ranks with 1 and 2 workers, processes and dask (minutes)
	$(BIN)/python -m tests.benchmarks.bench_units

bench-store: .venv/.installed-test ## a STORE of 4,096 ranks, one of whose workers is killed, and its pages (minutes)
	$(BIN)/python -m tests.benchmarks.bench_store

bench-viewer: .venv/.installed-test browser ## CPU time of the pages of a million launches, a report of 100,000, and the page of a step (minutes)
	$(BIN)/python -m tests.benchmarks.bench_viewer
	$(BIN)/python -m tests.benchmarks.bench_step_page

bench-load: .venv/.installed-test ## 50 clients that wait for nothing but their answers, on a million launches (minutes)
	$(BIN)/python -m tests.benchmarks.bench_load

fuzz: .venv/.installed-test ## 100,000 damaged logs, end to end (hours); FUZZ="--first N --count M" goes on from a case
	$(BIN)/python -m tests.fuzz $(FUZZ)

bench-gpu: .venv/.installed-test compiler ## the same on a CUDA device (bring your own torch with CUDA into .venv)
	$(BIN)/python -m tests.benchmarks.bench_gpu
	$(BIN)/python -m tests.benchmarks.bench_ring
	$(BIN)/python -m tests.benchmarks.bench_gpu_large
	$(BIN)/python -m tests.benchmarks.bench_gpu_stats

pictures: .venv/.installed-test compiler browser ## take the pictures of the documentation again (minutes)
	$(BIN)/python docs/make_pictures.py

clean: ## remove .venv, the demo's output and every cache
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/stepscope-tests"
	rm -rf .venv dist demo build .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call debian,TEST,PACKAGES): unless the shell command TEST succeeds, install PACKAGES where apt-get is there
# and may be used; where not, say so and go on.
debian = @{ $(1); } >/dev/null 2>&1 || { \
	if [ "$$(id -u)" = 0 ]; then root="env"; else root="sudo -n env"; fi; \
	apt="$$root DEBIAN_FRONTEND=noninteractive apt-get"; \
	install="$$apt install -y --no-install-recommends $(2)"; \
	{ command -v apt-get && { $$install || { $$apt update && $$install; }; }; } \
	|| echo "make: $(2) is missing and could not be installed here" >&2; }

# torch.compile builds C++ kernels against Python's headers.
compiler: .venv/.installed
	$(call debian,c++ --version || clang++ --version,g++)
	$(call debian,$(BIN)/python -c 'import os$(comma) sysconfig as s; os.stat(s.get_path("include") + "/Python.h")',python3-dev)

browser:
ifeq ($(shell uname -s),Linux)
	$(call debian,command -v chromium || command -v google-chrome || test -n "$$STEPSCOPE_CHROMIUM",chromium)
endif

comma := ,

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "stepscope needs Python 3.10 or newer")'
	$(call debian,$(PYTHON) -c 'import ensurepip',python3-venv)
	$(PYTHON) -m venv .venv
	$(PIP) install 'pip>=25.1'  # the first that reads [dependency-groups]
	touch $@

# torch stands in the same command as everything else, so that nothing can pull another build of it.
.venv/.installed: .venv/.created pyproject.toml constraints.txt static/hatch_build.py static/links.py tracer/_version.py
	$(PIP) install -c constraints.txt torch==2.13.0 -e ".[viewer]"
	touch $@

.venv/.installed-test: .venv/.installed
	$(PIP) install -c constraints.txt torch==2.13.0 --group test
	touch $@
