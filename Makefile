# One command a chore; CONTRIBUTING.md explains each.
#
# PYTHON  the interpreter that the virtual environment is made with (default: python3)
# VENV    where the virtual environment lies (default: .venv). `VENV=` (empty) makes none and installs
#         nothing: PYTHON itself runs the sources, with whatever packages it has.

PYTHON ?= python3
VENV ?= .venv
TORCH := torch==2.13.0
OLDEST_TORCH := torch==2.6.0
OLDEST_READY := .venv-oldest-torch/.ready
NEWEST_PYTHON ?= python3.13
NEWEST_READY := .venv-newest-python/.ready
PYTEST_ARGS ?=
# Most tests wait for a child that imports torch, on one core, and some for nothing but time: two cores are busy with
# three. PYTEST_ARGS="-n 0" runs them in one process.
IN_PROCESSES := -n 3 --dist loadfile --no-loadscope-reorder
# After it `make test-gpu` begins no other test: a machine with an accelerator may be lent for ten minutes at a time.
TEST_SECONDS ?= 500

export PIP_DISABLE_PIP_VERSION_CHECK := 1

ifeq ($(strip $(VENV)),)
RUN := PYTHONPATH=src$(if $(PYTHONPATH),:$(PYTHONPATH)) $(PYTHON)
DEMO_READY :=
TEST_READY :=
else
RUN := $(VENV)/bin/python
DEMO_READY := $(VENV)/.ready-demo
TEST_READY := $(VENV)/.ready-test
endif

.DEFAULT_GOAL := help
.PHONY: help browser docs screenshots demo test test-all test-oldest-torch test-newest-python test-gpu test-device device-demo device-findings device-lines bench bench-lint-precision bench-harmless bench-storm bench-gpu bench-gpu-findings lint clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(DEMO_READY)  ## install what it needs and tune a small workload: the quickest way to see hotlap work
	$(RUN) -m hotlap demo

test: lint browser  ## lint and the fast tests; what CI runs
	$(RUN) -m pytest $(IN_PROCESSES) $(PYTEST_ARGS)

test-all: lint browser  ## every test that needs no accelerator, slow ones too
	$(RUN) -m pytest -m "not gpu" $(PYTEST_ARGS)

test-oldest-torch: $(OLDEST_READY)  ## the tests of the rooms that use torch, with the oldest version that hotlap supports
	PYTHONPATH=src .venv-oldest-torch/bin/python -m pytest tests/levers tests/runtime tests/trial tests/end_to_end $(PYTEST_ARGS)

test-newest-python: $(NEWEST_READY)  ## the fast tests, with NEWEST_PYTHON, which torch must have wheels for
	PYTHONPATH=src .venv-newest-python/bin/python -m pytest $(IN_PROCESSES) $(PYTEST_ARGS)

test-gpu: $(TEST_READY)  ## the tests that need an accelerator, for TEST_SECONDS at most; the next call goes on there
	$(RUN) -m pytest -m gpu --within $(TEST_SECONDS) $(PYTEST_ARGS)

test-device: $(TEST_READY)  ## device code on a simulated device, which a C++ compiler makes: logic, never speed
	$(RUN) -m pytest -m "slow or not slow" tests/on_device $(PYTEST_ARGS)
	PYTHONPATH=src:tests $(RUN) -m simulated --device a100 $(RUN) -m pytest -m gpu tests/gpu $(PYTEST_ARGS)

device-demo: $(TEST_READY)  ## hotlap at work on a simulated device; DEMO="tune --budget 10m" for another command
	PYTHONPATH=src:tests $(RUN) -m simulated.demo $(DEMO)

device-findings: $(TEST_READY)  ## whether causes planted for a device are found on a simulated one: logic, never speed
	PYTHONPATH=src:tests $(RUN) -m simulated --device a100 --scenario bench/findings/simulated.toml \
	    $(RUN) -m bench.findings --device --out docs/benchmarks/findings-simulated

device-lines: $(TEST_READY)  ## what ran on the CPU and on the simulated device, into docs/benchmarks
	PYTHONPATH=src:tests $(RUN) -m bench.device_lines --out docs/benchmarks/device-lines

bench: $(TEST_READY)  ## the benchmarks that need no accelerator; results go to docs/benchmarks
	$(RUN) -m bench.overhead --out docs/benchmarks/overhead
	-$(RUN) -m bench.watch --out docs/benchmarks/watch --pieces build/watch
	$(RUN) -m bench.isolation --out docs/benchmarks/isolation
	$(RUN) -m bench.estimate --out docs/benchmarks/estimate --pieces build/estimate
	$(RUN) -m bench.batch --out docs/benchmarks/batch --pieces build/batch
	$(RUN) -m bench.scale --out docs/benchmarks/scale --pieces build/scale
	$(RUN) -m bench.aa --out docs/benchmarks/aa --pieces build/aa
	for example in bert gpt lstm resnet; do \
	    $(RUN) -m bench.regret --out docs/benchmarks/regret/$$example --examples $$example --pieces build/regret || exit 1; done
	$(RUN) -m bench.regret.simulated --out docs/benchmarks/regret-simulated --pieces build/regret-simulated
	$(RUN) -m bench.crossover --out docs/benchmarks/crossover --pieces build/crossover
	$(RUN) -m bench.first_gradients --out docs/benchmarks/first-gradients
	$(RUN) -m bench.single_steps --out docs/benchmarks/single-steps
	$(RUN) -m bench.turns --out docs/benchmarks/turns --pieces build/turns
	$(RUN) -m bench.search_cost --out docs/benchmarks/search-cost --examples bert,gpt,lstm,resnet \
	    --pieces build/search-cost
	-$(RUN) -m bench.findings.truth --out docs/benchmarks/findings-truth
	$(RUN) -m bench.findings --out docs/benchmarks/findings --truth docs/benchmarks/findings-truth
	$(RUN) -m bench.lint --out docs/benchmarks/lint
	$(RUN) -m bench.lint_impact --out docs/benchmarks/lint-impact
	$(RUN) -m bench.trace --out docs/benchmarks/trace --large

bench-lint-precision: $(TEST_READY)  ## how often the lint rules are right, in packages that it downloads to be read
	$(RUN) -m pip install -q --no-deps --no-compile --ignore-requires-python --upgrade --target build/lint-corpus \
	    -r bench/lint_precision/further.txt -r bench/lint_precision/held_out.txt
	$(RUN) -m bench.lint_precision --further build/lint-corpus --out docs/benchmarks/lint-precision

bench-harmless: $(TEST_READY)  ## what trials do to files, in every way of isolating them
	$(RUN) -m bench.harmless --out docs/benchmarks/harmless

bench-storm: $(TEST_READY)  ## kill runs at random moments in every way, and look at what is left
	$(RUN) -m bench.storm --kills 200 --out docs/benchmarks/storm

bench-gpu: $(TEST_READY)  ## the benchmarks of an accelerator; results go to docs/benchmarks/gpu
	$(RUN) -m bench.gpu --out docs/benchmarks/gpu

bench-gpu-findings: $(TEST_READY)  ## whether causes planted on an accelerator are found; to docs/benchmarks/findings-gpu
	$(RUN) -m bench.findings --device --out docs/benchmarks/findings-gpu

docs: $(TEST_READY)  ## the documentation site, into site/; warnings are errors
	PYTHONPATH=src $(RUN) -m mkdocs build --strict

screenshots: $(TEST_READY)  ## the pictures of the documentation, of the report of a real STUDY, a folder in .hotlap
	PYTHONPATH=src $(RUN) docs/_site/screenshots.py $(STUDY)

lint: $(TEST_READY)  ## ruff, mypy --strict, and the types of the tests
	$(RUN) -m ruff check src tests bench examples docs
	$(RUN) -m mypy & sources=$$!; $(RUN) -m mypy --config-file tests/mypy.ini tests; tests=$$?; wait $$sources && exit $$tests

browser:  ## the browser that tests of the HTML report drive: Debian's chromium, where we may install it
	@for it in chromium chromium-browser google-chrome; do command -v $$it >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1; \
	then exit 0; fi; \
	echo "There is no chromium, and it cannot be installed from here: tests that need a browser will say that they skip."

clean:  ## remove the virtual environment and everything that was built or cached
	rm -rf .venv .venv-oldest-torch .venv-newest-python build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip would compile one module after the other; `compileall` does so on all cores. Of some packages a few files are
# templates, or for other versions of Python: that these are not compiled is no failure.
INSTALL := -m pip install -q --no-compile -c constraints.txt
COMPILE := -m compileall -q -j 0 $(VENV)/lib >/dev/null || true

# torch goes first and alone: it is nearly all of the download, and whatever comes later finds it in place.
ifneq ($(strip $(VENV)),)
$(VENV)/.ready-torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(INSTALL) $(TORCH)
	@touch $@

$(OLDEST_READY): pyproject.toml
	$(PYTHON) -m venv .venv-oldest-torch
	.venv-oldest-torch/bin/python -m pip install -q $(OLDEST_TORCH)
	.venv-oldest-torch/bin/python -m pip install -q $(OLDEST_TORCH) "transformers<5" -e ".[test]"
	@touch $@

$(NEWEST_READY): pyproject.toml
	$(NEWEST_PYTHON) -m venv .venv-newest-python
	.venv-newest-python/bin/python -m pip install -q $(TORCH)
	.venv-newest-python/bin/python -m pip install -q -c constraints.txt -e ".[test]"
	@touch $@

$(DEMO_READY): $(VENV)/.ready-torch pyproject.toml
	$(VENV)/bin/python $(INSTALL) -e ".[demo,report,source]"
	@$(VENV)/bin/python $(COMPILE)
	@touch $@

$(TEST_READY): $(VENV)/.ready-torch pyproject.toml
	$(VENV)/bin/python $(INSTALL) -e ".[test,dev]"
	@$(VENV)/bin/python $(COMPILE)
	@touch $@ $(DEMO_READY)
endif
