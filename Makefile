# One environment and one call each; `make test PYTHON=python3.12 VENV=.venv-3.12` for another Python.
PYTHON ?= python3
VENV ?= .venv
REPORT ?= reports/latest
TESTS ?= tests
EXTRAS ?= test,lint
# Of `make conformance`: the families of kernels/, or `all` suites but those of `make libraries`, which have a budget.
SUITES ?= families
DEPTH ?= quick
suites_families = $(wildcard suites/test_*.py)
suites_all = suites --ignore suites/ejkernel

# Tests start hundreds of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# mypy needs one processor, and the tests wait at times.
test: style
	@$(MAKE) --no-print-directory --jobs=2 types unit

# Also whole sessions, other tools and sweeps, which CI runs.
test-all: style
	@$(MAKE) --no-print-directory --jobs=2 types unit-all

lint: style types

types: $(VENV)/ready
	$(VENV)/bin/mypy

style: lint-js $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/python tools/check_style.py
	$(VENV)/bin/lint-imports --no-logo
	git ls-files -z | xargs -0 $(VENV)/bin/check-merge-conflict --assume-in-merge
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-actions action.yml .github/actions/*/action.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

# The page's files are one script: only all of them together show a name that none defines, or none uses.
lint-js: $(VENV)/ready
	$(VENV)/bin/oxlint --deny-warnings
	find kerneltest -name '*.js' -exec cat {} + > $(VENV)/page.js
	$(VENV)/bin/oxlint --deny-warnings --deny no-undef --deny no-unused-vars $(VENV)/page.js

# Git runs the linters before each commit, on what it holds.
hooks: $(VENV)/ready
	$(VENV)/bin/pre-commit install

# The tests of a file share what takes long to make, so a worker gets whole files, in the order of tests/conftest.py.
unit: $(VENV)/ready
	$(VENV)/bin/pytest -q -m "not slow" -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

unit-all: $(VENV)/ready
	$(VENV)/bin/pytest -q -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

# `make conformance DEPTH=standard SUITES=all` is what CI runs. Where libtpu is installed, kernels are compiled for TPUs too.
conformance: $(VENV)/ready
	@backends=all; left=yes; \
	if $(VENV)/bin/python -c 'import libtpu' 2> /dev/null; then backends='all,compile:tpu-*'; left=; fi; \
	$(VENV)/bin/pytest -p kerneltest -n auto $(or $(suites_$(SUITES)),$(error SUITES is families or all)) \
	  --kt-depth $(DEPTH) --kt-report $(REPORT) --kt-backends "$$backends"; status=$$?; \
	test -z "$$left" || echo "compile:tpu-* was left out, since libtpu is not installed (half a gigabyte; it needs no TPU):" \
	  "$(VENV)/bin/pip install -e '.[tpu]'"; \
	exit $$status

# Kernels of a library, some of which cost seconds a call: what fits into a budget, and no TPU interpreter.
libraries: $(VENV)/ready
	$(VENV)/bin/pytest -p kerneltest -n auto suites/ejkernel --kt-depth quick --kt-budget 5 --kt-minimize 0 \
	  --kt-backends 'interpret,lower:sm_90,lower:gfx942,lower:tpu-v5e,simulate:sm_90'

# Generated kernels, right by construction: a finding is a bug of kerneltest, of Pallas or of the generator. One kernel
# of each production is judged on the same backends by tests/tools/test_generate.py.
SEEDS ?= 0:31
JOBS ?= 2
generated: $(VENV)/ready
	$(VENV)/bin/python -m benchmarks.generated --seeds $(SEEDS) --jobs $(JOBS) \
	  --backends interpret,interpret-mosaic-gpu,lower:sm_90,simulate:gfx942

# Kernels with bugs, for the report's examples: findings are what is wanted, so 1 is the right exit code.
findings: $(VENV)/ready
	$(VENV)/bin/pytest -p kerneltest examples --kt-depth quick --kt-backends 'all,compile:sm_90,compile:gfx942' \
	  --kt-report reports/findings; test $$? -eq 1

# One static site, in site/. A link that leads nowhere fails it, and so does a question whose page the search does not find.
docs: $(VENV)/docs-ready
	$(VENV)/bin/mkdocs build --strict
	node tools/check_search.mjs site docs/search-questions.json

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/docs-ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv* .tox dist site .pytest_cache .mypy_cache .ruff_cache $(REPORT)

.PHONY: test test-all lint lint-js types style hooks unit unit-all conformance libraries generated findings docs clean
