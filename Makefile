# For people; .ci/run is what a machine runs. PYTHON must have Nadi's [dev] extra installed.
PYTHON ?= python

.PHONY: check test mutations verify bench docs pictures wheel

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

# changes 60 constants and signs, one at a time, and says which of them no test noticed; an hour
mutations:
	$(PYTHON) tests/small_changes.py

# all of what some programs take a share of in .ci/run
verify:
	set -e; for program in verification/[a-z]*.py; do echo "== $$program"; \
		$(PYTHON) $$program $$(grep -q '"--all"' $$program && echo --all); done

bench:
	set -e; for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(PYTHON) $$script; done

# the pages that come from the code, and the site of all pages in site/: python -m http.server -d site
docs:
	$(PYTHON) docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build

# of pages, as the documentation shows them; needs Chromium
pictures:
	$(PYTHON) docs/pictures.py

# with compiled kernels, for this Python and system; needs hatchling, and takes a minute
wheel:
	NADI_BUILD_KERNELS=1 $(PYTHON) -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .
