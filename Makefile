# Every target makes the environment first when it is missing or older than its lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-lock
DEMO_STAMP := $(VENV)/.made-for-demo

.PHONY: setup demo demo-sync test test-times faults cluster upgrade fuzz check bench bench-guard bench-overlays papers tables soak pairs stream-search proof soak-sync confinement examples guides docs sync-types mutations mutants lock release clean

# With everything, for tests and all commands; `make demo` alone takes what the demo and the first
# guides need: half of it.
setup: $(STAMP)

# $(call make_env,LOCK): a virtual environment with what a lock names, by uv if that is there.
define make_env
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "canopy needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
@echo "making $(VENV) from $(1): half a minute with uv, one or two with pip, most of it Spark"
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
@if command -v uv > /dev/null; then \
  uv pip install --python $(BIN)/python --require-hashes -r $(1) && \
  uv pip install --python $(BIN)/python --quiet --no-deps --no-build-isolation \
    --config-settings editable_mode=compat -e . ; \
else \
  $(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r $(1) && \
  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --config-settings editable_mode=compat -e . ; \
fi
endef

$(STAMP): requirements.lock pyproject.toml
	$(call make_env,requirements.lock)
	@touch $(DEMO_STAMP) $@

$(DEMO_STAMP): requirements-demo.lock pyproject.toml
	$(call make_env,requirements-demo.lock)
	@touch $@

demo: $(DEMO_STAMP)
	$(BIN)/canopy demo $(DEMO)
	@echo "what next:  source .venv/bin/activate        the command canopy, in this shell"
	@echo "            canopy --help, or README.md      two nodes by hand, subscribe, publish, ask why"
	@echo "            docs/README.md                   all guides; make setup installs what they need"

# A database and its copy, while the process that keeps them in sync is killed twice.
demo-sync: setup
	$(BIN)/python -m bench.sync.demo $(DEMO)

# In three processes, for two cores: tests with real processes stay in one, and mostly wait; those
# with Spark stay in one as well (tests/conftest.py).
# Compiled modules are kept within the environment, whatever the shell says: else each of the three,
# and each process that a test starts, compiles all that it imports again (0.3 s of 0.45 for a node).
test: setup
	PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache \
	  $(BIN)/python -m pytest -n 3 --dist loadgroup $(TESTS)

# The suite, and what processor time it takes by folder, file and test. TESTS="tests/links", TIMES=200.
test-times: setup
	PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache \
	  $(BIN)/python -m pytest -q -n 2 --dist loadgroup -p tests.support.times \
	  --times $(or $(TIMES),40) $(TESTS)

# Faults from outside on real processes, too long for the suite: some three minutes. Those with full
# disks take root.
faults: setup
	$(BIN)/python -m pytest -m faults tests/canopy/wire/faults tests/bench/faults $(FAULTS)

# The analysis and streams on a Spark master with two workers, too long for the suite: some minutes.
cluster: setup
	$(BIN)/python -m pytest -m cluster tests/canopy/traces/cluster tests/canopy/spark/cluster $(CLUSTER)

# Every parser on inputs near valid ones, a minute each; those that reach new lines lead to others.
# FUZZ="selectors feeds --seconds 600".
fuzz: setup
	$(BIN)/python -m tests.fuzz $(FUZZ)

# Twelve real nodes upgraded one by one under load, some two minutes. UPGRADE="--old FOLDER".
upgrade: setup
	$(BIN)/python -m bench.processes.upgrade $(UPGRADE)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What an event, a subscription, a row and an hour cost, counted in the simulator, beside the file.
bench: setup
	$(BIN)/python -m bench.lab.ledger

# The data plane at its defaults, traced and not, beside two yardsticks: some ten minutes. Its rows are
# kept in bench/results/guard.json, and docs/lab/performance.md shows them.
bench-guard: setup
	$(BIN)/python -m bench.lab.record guard -- python -m bench.dataplane.compare --json \
	  --sizes 10000 --variants one pct1 --systems canopy_one canopy_one_untraced canopy_three \
	  canopy_eight canopy_eight_untraced tcp-fan-out zeromq-batch --seconds 3 \
	  --latency canopy_one canopy_three canopy_eight $(GUARD)
	$(BIN)/python -m bench.lab.record guard -- python -m bench.dataplane.compare --json \
	  --sizes 10000 --variants ten --systems canopy_one canopy_one_untraced canopy_eight \
	  zeromq-batch --seconds 3 --no-latency $(GUARD)
	$(BIN)/python -m bench.lab.tables

# Three and eight nodes beside overlays of NATS, Zenoh and ZeroMQ: four runs of some five minutes. The
# rows are kept in bench/results/dataplane-overlays.json. OVERLAYS="--repeats 3".
bench-overlays: setup
	for variant in one pct1; do for size in 1000 10000; do \
	  $(BIN)/python -m bench.lab.record dataplane-overlays -- python -m bench.dataplane.compare \
	    --json --sizes $$size --variants $$variant --systems canopy_three canopy_eight nats-cluster \
	    zenoh-routers zeromq-mesh zeromq-batch $(OVERLAYS) || exit 1; done; done
	$(BIN)/python -m bench.lab.tables

# The experiments of the five papers, and docs/lab/papers.md with ours beside theirs: some twenty
# minutes, and what this commit has measured already is not measured again. PAPERS=full for the
# papers' sizes (hours), PAPERS="venus --again" for some.
papers: setup
	$(BIN)/python -m bench.papers $(if $(filter full,$(PAPERS)),--full,$(PAPERS))

# The tables of docs/lab from the rows in bench/results.
tables: setup
	$(BIN)/python -m bench.lab.tables

# Random scenarios by seed until one is bad, or Ctrl-C. SOAK="--minutes 10", "--seed 7 --seeds 1".
soak: setup
	$(BIN)/canopy sim soak $(SOAK)

# Each fault alone and each pair of faults, simulated: some seven minutes. PAIRS="--seed 7".
pairs: setup
	$(BIN)/canopy sim pairs $(PAIRS)

# Replicas of a stream's shard under faults, by seed until one is bad. SEARCH="--seed 7 --seeds 1".
stream-search: setup
	$(BIN)/python -m tests.streams.search $(SEARCH)

# Random values of every type between databases on real servers: some ten minutes.
sync-types: setup
	CANOPY_EXAMPLES_SHARE=1 CANOPY_EXAMPLES=$(or $(EXAMPLES),300) $(BIN)/python -m pytest -q \
	  --timeout 3600 tests/canopy/sync/test_sync_types.py

# Random databases kept in sync while processes and servers are killed, by seed until one is bad.
# SOAK="--seed 7 --seeds 20".
soak-sync: setup
	$(BIN)/python -m bench.sync.soak $(SOAK)

# Every test, each property with ten times the random inputs that it asks for, and all seeds; the
# suite takes a quarter of both. TESTS="tests/matching", SHARE=100.
examples: setup
	PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache \
	  CANOPY_EXAMPLES_SHARE=$(or $(SHARE),10) $(BIN)/python -m pytest -n 3 --dist loadgroup \
	  --timeout 3600 $(TESTS)

# The blocks of README and guides, shell and Python, each page from top to bottom in an empty folder: some ten
# minutes. GUIDES="streams subscribe", GUIDES=--list.
guides: setup
	$(BIN)/python -m bench.processes.guides $(GUIDES)

# The documentation as a site, with search and the library's reference: build/site/index.html. In an
# environment of its own; a link or an anchor that leads nowhere is an error.
DOCS_TOOLS := build/docs-tools
docs: setup $(DOCS_TOOLS)/.made
	mkdir -p build/pages
	for page in help messages reasons settings traces hearing counters attacks standards statements; do $(BIN)/python -m bench.site.pages $$page > build/pages/$$page.md || exit 1; done
	NO_MKDOCS_2_WARNING=1 $(DOCS_TOOLS)/bin/mkdocs build --quiet
	@echo "build/site/index.html"

$(DOCS_TOOLS)/.made: requirements-docs.lock
	test -x $(DOCS_TOOLS)/bin/python || $(PYTHON) -m venv $(DOCS_TOOLS)
	$(DOCS_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements-docs.lock
	@touch $@

# What policies leave of selectors, judged by SQLite: ten million triples, some minutes.
confinement: setup
	CANOPY_EXAMPLES_SHARE=1 CONFINEMENT=$${CONFINEMENT:-10000000} $(BIN)/python -m pytest -q \
	  tests/attacks/test_attacks_confinement.py

# Large trials of what is promised, which go on where they were ended: what was reached of each, and
# what is left. PROOF="soak churn --for 30" works on two, half an hour each; rows go to
# bench/results/proof.json, and docs/lab/proof.md shows them.
proof: setup
	$(BIN)/python -m bench.proof $(PROOF)

# Faults planted one at a time: does the test that each names find it? Some ten minutes, and it goes
# on where it was ended. Writes bench/results/mutations.json and docs/lab/mutations.md.
mutations: setup
	$(BIN)/python -m bench.mutations.check $(MUTATIONS)

# Weekly: the code that changed within a week, changed at random by mutmut, and what no test notices of
# that; an hour. mutmut has an environment of its own, with what .venv has.
# MUTANTS="--minutes 120 --since v0.1.0", MUTANTS=overlay/links/backlog.py.
MUTMUT := build/mutmut

mutants: setup
	test -x $(MUTMUT)/bin/python || $(PYTHON) -m venv $(MUTMUT)
	$(MUTMUT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements-mutants.lock
	$(BIN)/python -m bench.mutations.mutants --mutmut $(MUTMUT)/bin/mutmut $(MUTANTS)

# All extras, with hashes for every platform, and no registry's address.
lock:
	uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --custom-compile-command "make lock" -o requirements.lock
	uv pip compile pyproject.toml --group build --extra analysis --extra telemetry --extra tui --extra gateway \
	  --universal --python-version 3.11 --constraint requirements.lock \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --custom-compile-command "make lock" -o requirements-demo.lock
	uv pip compile --group release --universal --python-version 3.11 --constraint requirements.lock \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --custom-compile-command "make lock" -o requirements-release.lock
	uv pip compile --group docs --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --custom-compile-command "make lock" -o requirements-docs.lock
	echo "mutmut>=3.8" | uv pip compile - --universal --python-version 3.11 --constraint requirements.lock \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --custom-compile-command "make lock" -o requirements-mutants.lock

# The sdist, the wheel and a bill of what it brings, in build/release: made, checked, and tried in an
# environment of its own. Nothing is published (docs/guide/release.md).
RELEASE := build/release
TOOLS := build/release-tools/bin
release:
	rm -rf $(RELEASE) build/release-trial
	test -x $(TOOLS)/python || $(PYTHON) -m venv build/release-tools
	$(TOOLS)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements-release.lock
	$(TOOLS)/python -m build --no-isolation --outdir $(RELEASE) .
	$(TOOLS)/twine check --strict $(RELEASE)/*
	$(TOOLS)/check-wheel-contents $(RELEASE)/*.whl
	$(TOOLS)/uv pip compile --quiet pyproject.toml --extra all --constraint requirements.lock \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	  -o $(RELEASE)/requirements.txt
	$(TOOLS)/cyclonedx-py requirements $(RELEASE)/requirements.txt --pyproject pyproject.toml \
	  --output-reproducible --output-file $(RELEASE)/sbom.cdx.json
	$(PYTHON) -m venv build/release-trial
	sed -e '/--hash/d' -e 's/ *\\$$//' $(RELEASE)/requirements.txt > build/release-trial/constraints.txt
	build/release-trial/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint build/release-trial/constraints.txt $(RELEASE)/*.whl
	cd build/release-trial && bin/canopy --version && bin/canopy node --help > /dev/null && \
	  bin/python -c 'import canopy, canopy.aio, canopy.trio'
	@cd $(RELEASE) && sha256sum * | tee SHA256SUMS

clean:
	rm -rf $(VENV) build
