# Targets for people and for CI. "make help" lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The targets share one build cache and one set of VMs: one at a time.
.NOTPARALLEL:

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGES   ?= pando/busybox pando/debian
FUZZTIME ?= 30s

COWRAM    := internal/memory/cowram.so
AGENT     := internal/agentbin/files/pando-agent
# All that the binaries are made of. What the build itself puts there is left out.
SOURCES    = go.mod go.sum $(shell find api cmd images internal sdk -type f \
	-not -name '*_test.go' -not -path '*/testdata/*' -not -path '$(AGENT)' -not -name 'cowram.so*')
LINT       = $(GO) tool -modfile=tools/go.mod golangci-lint

##@ Use

.PHONY: help
help: ## Show this text
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup build ## Set up what is missing, then fork a live VM into three
	@scripts/demo.sh

.PHONY: bench
bench: setup build images ## Measure create, fork, resume and memory; print p50 and p95
	$(GO) test -count=1 -timeout 60m -run '^$$' -bench . ./test/bench/...

##@ Build

.PHONY: setup
setup: ## Install the packages that are missing (apt)
	@scripts/setup.sh

.PHONY: test-tools
test-tools: ## Install what the tests run: shells, manual readers, the reference client (apt, npm)
	@scripts/setup.sh test
	@scripts/compat.sh

.PHONY: build
build: bin/pando bin/pando-agent ## Build bin/pando and bin/pando-agent

.PHONY: images
images: build ## Build the base images into the cache, once
	bin/pando image build $(IMAGES)

$(COWRAM): $(wildcard internal/memory/cowram/*) internal/memory/Makefile
	$(MAKE) --no-print-directory -C internal/memory cowram.so

# No version from git in it: images contain the agent, and every commit would
# make them out of date.
bin/pando-agent: $(SOURCES)
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $@ ./cmd/pando-agent

# A copy that keeps its time stamp: the embedded agent is rebuilt only when it changes.
$(AGENT): bin/pando-agent
	@cmp -s $< $@ && touch $@ || install -m 0755 $< $@

bin/pando: $(COWRAM) $(AGENT) $(SOURCES)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./cmd/pando

.PHONY: man
man: build ## Write the manual pages to build/man/man1
	bin/pando man build/man/man1

.PHONY: clean
clean: ## Remove what the build made (not the image cache)
	rm -rf bin build $(AGENT)
	$(MAKE) --no-print-directory -C internal/memory clean

##@ Test

.PHONY: test
test: setup build images test-tools race vm-test ## Everything: set up, build, unit tests with the race detector, tests with real VMs

.PHONY: race
race: $(COWRAM) $(AGENT) ## Unit tests with the race detector
	$(GO) test -race -timeout 20m $$($(GO) list ./... | grep -v '^github.com/pandovm/pando/test/')

.PHONY: vm-test
vm-test: build images test-tools ## Tests with real VMs
	$(GO) test -count=1 -p 1 -timeout 30m ./test/...

.PHONY: compat
compat: build images test-tools ## The reference client, SDK and command line, against a real daemon
	$(GO) test -count=1 -timeout 30m ./test/compat

.PHONY: compat-latest
compat-latest: build images ## The same with the newest published client: reports, never fails
	@scripts/setup.sh test
	-@scripts/compat.sh latest
	-PANDO_COMPAT=latest $(GO) test -count=1 -timeout 30m ./test/compat

.PHONY: fuzz
fuzz: $(COWRAM) $(AGENT) ## Fuzz every parser of outside bytes for FUZZTIME each
	@for pkg in $$(grep -rlE '^func Fuzz' --include='*_test.go' api internal sdk | xargs -n1 dirname | sort -u); do \
		for name in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | cut -d' ' -f2); do \
			echo "== $$pkg $$name"; $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) ./$$pkg; \
		done; \
	done

##@ Check

.PHONY: lint
lint: $(COWRAM) $(AGENT) ## golangci-lint, import rules, shellcheck (the first run compiles the linter: minutes)
	$(LINT) run
	$(GO) test -count=1 ./internal/archtest
	@command -v shellcheck >/dev/null || { echo "shellcheck is missing: make setup installs it" >&2; exit 1; }
	grep -rlE '^#!/(usr/)?bin/(env )?(ba|da)?sh' scripts .ci images | xargs -r shellcheck

.PHONY: fmt
fmt: ## Format the sources (gofumpt, gci)
	$(LINT) fmt
