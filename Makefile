# `make` shows what there is. A fresh clone needs Python 3.11+ and make; the rest is fetched.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Bytecode is kept whatever the environment says: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
export KAFKA_PORT ?= 9092
export HTTP_PORT ?= 8181
export DATA ?= ./data
export BROKERS ?= 1

BIN := .venv/bin
KAFKA_LIBS := $(CURDIR)/.cache/kafka
SPARK_JARS := $(CURDIR)/.cache/jars
KIT_JARS := $(CURDIR)/.cache/rck
NESSIE_JARS := $(CURDIR)/.cache/nessie
HIVE_JARS := $(CURDIR)/.cache/hive
SPARK_S3_JARS := $(CURDIR)/.cache/spark-s3
YARN_JARS := $(CURDIR)/.cache/yarn
TRINO_JARS := $(CURDIR)/.cache/trino
STORE_TOOLS := $(CURDIR)/.cache/store-tools
REGISTRY_JARS := $(CURDIR)/.cache/registries
ECOSYSTEM_JARS := $(CURDIR)/.cache/ecosystem
SUITES := $(CURDIR)/.cache/suites
FLIGHT_JARS := $(CURDIR)/.cache/flight
JAVA = JAVA_HOME=$$($(BIN)/python tools/ensure_java.py)
TEST_ENV = LAKESTREAM_KAFKA_LIBS=$(KAFKA_LIBS) LAKESTREAM_SPARK_JARS=$$(echo $(SPARK_JARS)/*.jar) \
  LAKESTREAM_NESSIE_JARS=$(NESSIE_JARS) LAKESTREAM_HIVE_JARS=$(HIVE_JARS) LAKESTREAM_SPARK_S3_JARS=$(SPARK_S3_JARS) \
  LAKESTREAM_YARN_JARS=$(YARN_JARS) LAKESTREAM_TRINO_JARS=$(TRINO_JARS) \
  LAKESTREAM_STORE_TOOLS=$(STORE_TOOLS) LAKESTREAM_REGISTRY_JARS=$(REGISTRY_JARS) \
  LAKESTREAM_ECOSYSTEM_JARS=$(ECOSYSTEM_JARS) LAKESTREAM_FLIGHT_JARS=$(FLIGHT_JARS)
PYTEST_ARGS ?=
# Tests wait for servers and leases more than they compute: more workers than cores.
WORKERS ?= 4
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup

.PHONY: help up demo-agent check test test-all compat bench simulate lint lock format jars nessie-jar registry-jars flight-jars ecosystem-jars hive-jars \
  spark-s3-jars yarn-jars trino-jars kit-jars store-tools suites kcat oxia clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.complete: requirements.lock pyproject.toml tools/make_venv.sh tools/install.py tools/uv.lock
	@tools/make_venv.sh

.venv/.dev: .venv/.complete requirements-dev.lock
	@$(BIN)/python tools/install.py requirements-dev.lock
	@touch $@

KERNELS := $(wildcard src/lakestream/records/*.py src/lakestream/records/kernels/*.py \
  src/lakestream/schemas/codecs/*.py src/lakestream/schemas/codecs/kernels/*.py src/lakestream/schemas/codecs/kernels/*/*.py \
  src/lakestream/schemas/codecs/*/layout.py)
.cache/kernels: .venv/.complete $(KERNELS)
	@echo "Compiling the kernels for this machine: the first time takes a minute …"
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -c 'from lakestream import records; from lakestream.schemas import codecs; records.warm_up(); codecs.warm_up()'
	@mkdir -p .cache && touch $@

up: .cache/kernels ## Start brokers, HTTP door and pipeline (KAFKA_PORT, HTTP_PORT, FLIGHT_PORT, DATA, BROKERS, BIND, KAFKA_ADVERTISED …)
	@$(BIN)/python tools/ensure_java.py --optional >/dev/null
	@exec $(BIN)/lakestream up

demo-agent: .cache/kernels ## An agent checks orders as they stream in, over MCP, and cites its evidence
	@$(BIN)/python tools/demo_agent.py

lint: .venv/.dev ## Check style, types and the rules between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check: .cache/kernels lint ## The inner loop: lint, and the tests of single modules and seams
	LAKESTREAM_EXAMPLES_SHARE=0.2 $(PYTEST) -m "not slow" tests/unit tests/contract $(PYTEST_ARGS)

jars: .venv/.complete ## Fetch Kafka's tools and Iceberg for Spark, which tests and benchmarks use
	@$(JAVA) && export JAVA_HOME && \
	$(BIN)/python tools/fetch_jars.py kafka $(KAFKA_LIBS) && \
	$(BIN)/python tools/fetch_jars.py spark $(SPARK_JARS)

nessie-jar: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py nessie $(NESSIE_JARS)

registry-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py registries $(REGISTRY_JARS)

ecosystem-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py ecosystem $(ECOSYSTEM_JARS)

flight-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py flight $(FLIGHT_JARS)

hive-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py hive $(HIVE_JARS)

spark-s3-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py spark-s3 $(SPARK_S3_JARS)

yarn-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py yarn $(YARN_JARS)

trino-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py trino $(TRINO_JARS)

oxia: .cache/oxia/oxia

# About six minutes of CPU time. Not with `go install`: the module's list of versions is not served.
.cache/oxia/oxia: tools/oxia/go.mod tools/oxia/go.sum
	@mkdir -p $(@D)
	@command -v go >/dev/null && { echo "Building the Oxia server …" && cd tools/oxia && \
	go build -mod=mod -o $(CURDIR)/$@ github.com/oxia-db/oxia/cmd; } || \
	echo "Oxia is not here, and its tests want it: install Go 1.24 or newer, then make oxia" >&2

kcat:
	@command -v kcat >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kcat >/dev/null; } || \
	echo "kcat is not here, and its tests want it: sudo apt-get install -y kcat" >&2

kit-jars: .venv/.complete
	@$(JAVA) && export JAVA_HOME && $(BIN)/python tools/fetch_jars.py rck $(KIT_JARS)

store-tools: # S3, Google's and Azure's store on this machine: two need Go, Azurite needs npm
	@mkdir -p $(STORE_TOOLS)
	@[ -x $(STORE_TOOLS)/bin/versitygw ] || { command -v go >/dev/null && echo "Building versitygw …" && \
	GOBIN=$(STORE_TOOLS)/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0; } || \
	echo "versitygw is not here, and its tests want it: install Go" >&2
	@[ -x $(STORE_TOOLS)/bin/fake-gcs-server ] || { command -v go >/dev/null && echo "Building fake-gcs-server …" && \
	GOBIN=$(STORE_TOOLS)/bin go install github.com/fsouza/fake-gcs-server@v1.56.1; } || \
	echo "fake-gcs-server is not here, and its tests want it: install Go" >&2
	@[ -x $(STORE_TOOLS)/node_modules/.bin/azurite-blob ] || { command -v npm >/dev/null && echo "Fetching Azurite …" && \
	npm install --silent --no-audit --no-fund --prefix $(STORE_TOOLS) azurite@3; } || \
	echo "Azurite is not here, and its tests want it: install npm" >&2

test: .cache/kernels lint jars nessie-jar kcat ## Everything a change must pass
	$(JAVA) $(TEST_ENV) LAKESTREAM_EXAMPLES_SHARE=0.5 $(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-all: .cache/kernels lint jars nessie-jar kcat registry-jars flight-jars ecosystem-jars hive-jars spark-s3-jars yarn-jars trino-jars kit-jars store-tools oxia ## The same, and the slow tests
	$(JAVA) $(TEST_ENV) LAKESTREAM_RCK_JARS=$(KIT_JARS) $(PYTEST) $(PYTEST_ARGS)

suites: # The tests of other people's clients
	@tools/suites/make_suites.sh $(SUITES)

compat: .cache/kernels jars suites ## Kafka's admin tools, the tests of franz-go and librdkafka, and the same requests to us and to a real Kafka
	$(JAVA) $(TEST_ENV) LAKESTREAM_SUITES=$(SUITES) $(BIN)/pytest tests/compat/test_admin_tools.py tests/compat/test_differential.py tests/compat/suites $(PYTEST_ARGS)

bench: .venv/.dev .cache/kernels jars ## Measure ourselves beside a real Kafka (QUICK=1: shorter)
	PYTHONPATH=tests $(JAVA) $(TEST_ENV) $(BIN)/python -m benchmarks.run

simulate: export SEED := $(or $(SEED),1)
simulate: export HISTORIES := $(or $(HISTORIES),500)
simulate: .venv/.dev .cache/kernels ## Run the log protocol in simulated worlds with faults (SEED, HISTORIES, STEP, BUG, JOBS)
	PYTHONPATH=tests $(BIN)/python -m simulator

format: .venv/.dev ## Let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
  --no-emit-index-url
lock: .venv/.complete ## Resolve the lock files anew from pyproject.toml
	echo uv | $(COMPILE) --output-file tools/uv.lock -
	$(COMPILE) --extra dev --output-file requirements-dev.lock pyproject.toml
	$(COMPILE) --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml

clean: ## Remove what was built and fetched; data stays
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
