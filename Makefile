# jorc: build, test and measure. `make` alone lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory

GO   ?= go
BIN  ?= bin
LINT  = $(GO) tool -modfile=tools/lint/go.mod

# Programs and tests are compiled as releases are: without cgo, which only the race detector and vale need, and without paths. Each
# other way costs a compilation of all modules.
export CGO_ENABLED = 0
export GOFLAGS    += -trimpath

# Files whose texts, comments and help vale checks (.vale.ini, docs/glossary.md): all but generated code.
PROSE = $(shell git ls-files '*.go' '*.md' ':!tools/openapi/client/*.gen.go')

# The version comes from git alone, the date is the commit's: the same commit
# gives the same binary.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
DATE    ?= $(shell TZ=UTC git show -s --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo unknown)
# Without the library's own documents, and the Markdown parser that they need, each
# command starts sooner.
TAGS     = urfave_cli_no_docs
LDFLAGS  = -s -w -buildid= -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)

# The Consul that tests and the demo run against: CONSUL_BIN, a consul on PATH,
# or bin/consul, which `make consul` builds.
CONSUL = $(abspath $(or $(shell command -v "$${CONSUL_BIN:-consul}" 2>/dev/null),bin/consul))

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

.PHONY: build
build: ## build bin/jorc: static, version stamped
	$(GO) build -buildvcs=false -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o '$(BIN)/jorc' ./cmd/jorc

.PHONY: consul
consul: ## provide the Consul that tests run against (CONSUL_BIN, one on PATH, or build bin/consul)
	@if [ -n "$${CONSUL_BIN:-}" ]; then \
		command -v "$$CONSUL_BIN" >/dev/null || { echo "CONSUL_BIN=$$CONSUL_BIN cannot be run" >&2; exit 1; }; \
	elif ! command -v consul >/dev/null; then \
		$(MAKE) bin/consul; \
	fi

# tools/consul pins each version that jorc is tested with: the newest in go.mod, the others in VERSION.mod.
CONSUL_BUILD = @mkdir -p bin && cd tools/consul && $(GO) build -ldflags '-s -w' -o ../../$@

bin/consul: tools/consul/go.mod tools/consul/go.sum
	@echo "building $@ from tools/consul; the first time takes minutes (4 on two cores)"
	$(CONSUL_BUILD) github.com/hashicorp/consul

bin/consul-%: tools/consul/%.mod tools/consul/%.sum
	@echo "building $@ from tools/consul; the first time takes minutes"
	$(CONSUL_BUILD) -modfile='$*.mod' github.com/hashicorp/consul

# VERSION is Consul's here, and none of the targets that the script makes may take it for jorc's.
.PHONY: test-consul
test-consul: ## run what speaks to Consul with one version, and write docs/consul-versions.md: VERSION=1.21.5 [SUITES='packages system fleet']
	@env -u VERSION -u SUITES -u MAKEFLAGS GO='$(GO)' MAKE='$(MAKE)' tools/test-consul '$(if $(filter command,$(origin VERSION)),$(VERSION))' $(SUITES)

# The S3 server that tests of the log store run against: VERSITYGW_BIN, a
# versitygw on PATH, or bin/versitygw.
VERSITYGW = $(abspath $(or $(shell command -v "$${VERSITYGW_BIN:-versitygw}" 2>/dev/null),bin/versitygw))

.PHONY: versitygw
versitygw: ## provide the S3 server that tests run against (VERSITYGW_BIN, one on PATH, or build bin/versitygw)
	@if [ -n "$${VERSITYGW_BIN:-}" ]; then \
		command -v "$$VERSITYGW_BIN" >/dev/null || { echo "VERSITYGW_BIN=$$VERSITYGW_BIN cannot be run" >&2; exit 1; }; \
	elif ! command -v versitygw >/dev/null && [ ! -x bin/versitygw ]; then \
		$(MAKE) bin/versitygw; \
	fi

bin/versitygw:
	@echo "building bin/versitygw from tools/s3; the first time takes a minute"
	@mkdir -p bin
	cd tools/s3 && $(GO) build -ldflags '-s -w' -o ../../bin/versitygw github.com/versity/versitygw/cmd/versitygw

# The peer of the benchmarks.
bin/consul-template:
	@mkdir -p bin
	cd tools/consul-template && $(GO) build -ldflags '-s -w' -o ../../bin/consul-template github.com/hashicorp/consul-template

# Most tests wait for Consul and for processes rather than compute, so few processors
# test six packages at a time.
TEST_PACKAGES ?= $(shell n=$$(nproc); echo $$((n < 6 ? 6 : n)))

# Compilers, linkers, tests and their Consuls are short-lived: with fewer garbage
# collections and without DWARF the run takes a tenth less of the processors.
TEST_GOGC ?= 400

# Each time, data races are looked for where goroutines share the most: in the agent, which runs all that a host does, and in what it is
# made of. With the detector everything is compiled a second time and takes several times as long, so test-race has it for the others, but for the
# commands, whose tests start thousands of processes that end before it could find anything, and the simulation, in which one goroutine at a
# time does something. The slowest ones begin: in the order of names the last would be alone, beside an idle machine.
RACED   = ./internal/agent ./internal/watch ./internal/concurrency ./internal/consul ./internal/leaders
SLOW    = ./cmd/jorc ./internal/replace
UNRACED = $(SLOW) $(shell $(GO) list ./... | grep -v $(foreach package,$(RACED),-e '$(package:.%=%)$$'))

# RERUN=2, as .ci/run has it, runs tests that failed again: see tools/gotest.
GOTEST         = GO='$(GO)' $(CURDIR)/tools/gotest
PACKAGES       = GOGC=$(TEST_GOGC) CONSUL_BIN='$(CONSUL)' VERSITYGW_BIN='$(VERSITYGW)' $(GOTEST)
# lint vets everything, with more checks than go test has.
PACKAGES_FLAGS = -vet=off -count=1 -ldflags=-w -p $(TEST_PACKAGES) -timeout 40m

.PHONY: test
test: consul versitygw bin/consul-template ## run all tests against a real Consul, or those of packages with the race detector: [PKG=./internal/x]
	$(PACKAGES) '$(or $(PKG),$(RACED))' -race $(PACKAGES_FLAGS)
ifeq ($(PKG),)
	$(PACKAGES) '$(UNRACED)' $(PACKAGES_FLAGS)
	cd tools/openapi && CONSUL_BIN='$(CONSUL)' $(GOTEST) ./... -timeout 5m
	cd tools/licenses && $(GOTEST) ./...
	cd tools/rerun && $(GOTEST) ./...
endif

.PHONY: test-race
test-race: consul versitygw bin/consul-template ## run the tests of packages with the race detector; CONTRIBUTING.md has the last result
	$(PACKAGES) '$(RACED) $(filter-out %/cmd/jorc %/sim,$(UNRACED))' -race $(PACKAGES_FLAGS)

# The validator of JSON Schemas that is not ours.
tools/ajv/node_modules: tools/ajv/package-lock.json
	cd tools/ajv && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: test-system
test-system: consul ## run the tests that need root, nginx, haproxy, PostgreSQL, jq, iproute2, iptables, puppet, python3, Prometheus, Ansible, npm, zsh, fish and tmux
	@missing=; \
	for program in nginx haproxy pg_createcluster jq ip iptables puppet python3 prometheus promtool ansible-playbook npm zsh fish tmux; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	[ -z "$$missing" ] || { echo "make test-system: missing:$$missing (apt-get install nginx haproxy postgresql jq iproute2 iptables puppet-agent python3 prometheus ansible npm zsh fish tmux)" >&2; exit 1; }; \
	[ "$$(id -u)" = 0 ] || { echo "make test-system: must be run as root" >&2; exit 1; }
	$(MAKE) tools/ajv/node_modules
	GO='$(GO)' CONSUL_BIN='$(CONSUL)' tools/test-tagged system -timeout 20m

# Fleets wait for one another more than they compute.
FLEETS ?= $(shell n=$$(nproc); echo $$((n < 3 ? 3 : n)))

.PHONY: test-fleet
test-fleet: build consul ## run several hosts in network namespaces: [SKIP='TestName|…']; needs root, haproxy, iproute2 and iptables
	@missing=; \
	for program in haproxy ip tc iptables-restore; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	[ -z "$$missing" ] || { echo "make test-fleet: missing:$$missing (apt-get install haproxy iproute2 iptables)" >&2; exit 1; }; \
	[ "$$(id -u)" = 0 ] || { echo "make test-fleet: must be run as root" >&2; exit 1; }
	GO='$(GO)' CONSUL_BIN='$(CONSUL)' JORC_BIN='$(abspath $(BIN)/jorc)' tools/test-tagged fleet -timeout 40m -parallel $(FLEETS) $(if $(SKIP),-skip '^($(SKIP))$$')

.PHONY: test-regressions
test-regressions: consul ## put faults of the past back, one after the other: a test must notice each; writes docs/regressions.md: [NAMES='NAME…']
	GO='$(GO)' CONSUL_BIN='$(CONSUL)' $(GO) run ./tools/regressions -write docs/regressions.md $(NAMES)

.PHONY: sim
sim: ## simulate fleets with faults, a process for each processor: [TIME=10m] [SEED=1]; one seed again, or its cause: SEED=N SEEDS=1 FLAGS=-sim.v, -sim.shrink
	GOGC=$(TEST_GOGC) $(GO) test -count=1 -timeout 0 ./sim -run TestFaults -v -sim.processes="$$(nproc)" -sim.seed='$(or $(SEED),1)' $(if $(SEEDS),-sim.seeds='$(SEEDS)',-sim.time='$(or $(TIME),10m)') $(FLAGS)

# TIME is that of each fuzzer.
.PHONY: fuzz
fuzz: ## fuzz, and keep the inputs that cover something new: [NAMES='FuzzName…'] [TIME=5s]
	GO='$(GO)' $(GO) run ./tools/fuzz -grow '$(or $(TIME),5s)' $(NAMES)

.PHONY: fuzz-coverage
fuzz-coverage: ## measure what the corpora of the fuzzers cover and write docs/fuzzing.md
	GO='$(GO)' $(GO) run ./tools/fuzz -write docs/fuzzing.md

.PHONY: soak
soak: build consul ## run what takes hours; CI does not
	GO='$(GO)' CONSUL_BIN='$(CONSUL)' JORC_BIN='$(abspath $(BIN)/jorc)' tools/test-tagged soak -race -timeout 12h

.PHONY: packages
packages: ## build deb and rpm packages for amd64 and arm64, their SBOM and checksums in dist/
	GO='$(GO)' tools/packages dist

# FROM and TO of the targets below; KEY is the fingerprint of a secret key in GnuPG's keyring, KEYRING the file of a public key.
.PHONY: repository
repository: ## build a signed apt and rpm repository: KEY=FINGERPRINT [FROM=dist] [TO=repository]
	@KEY='$(KEY)' tools/repository '$(or $(FROM),dist)' '$(or $(TO),repository)'

.PHONY: release
release: ## make all files of the release of this tag, with one signature: KEY=FINGERPRINT [TO=release]
	@KEY='$(KEY)' GO='$(GO)' tools/release '$(or $(TO),release)'

.PHONY: verify-release
verify-release: ## verify every file of a release: FROM=DIRECTORY|URL KEYRING=FILE
	@KEYRING='$(KEYRING)' tools/verify-release '$(FROM)'

.PHONY: test-packages
test-packages: consul bin/consul-template ## lint, install, upgrade and remove the packages under a booted systemd; needs root and the Debian archive
	@missing=; \
	for program in lintian rpmlint rpm mmdebstrap systemd-nspawn nsenter ansible gpg apt-ftparchive createrepo_c dnf faketime curl qemu-aarch64; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	[ -z "$$missing" ] || { echo "make test-packages: missing:$$missing (apt-get install lintian rpmlint rpm mmdebstrap systemd-container util-linux ansible gnupg apt-utils createrepo-c dnf faketime curl qemu-user)" >&2; exit 1; }; \
	[ "$$(id -u)" = 0 ] || { echo "make test-packages: must be run as root" >&2; exit 1; }
	cd tools/sbom && $(GOTEST) ./...
	GO='$(GO)' CONSUL_BIN='$(CONSUL)' tools/test-tagged packages -timeout 60m

.PHONY: test-browser
test-browser: consul ## drive the dashboard with Chromium; needs chromium
	@command -v chromium >/dev/null || { echo "make test-browser: missing: chromium (apt-get install chromium)" >&2; exit 1; }
	$(GO) build -buildvcs=false -o '$(BIN)/browser/jorc' ./cmd/jorc
	cd tools/browser && $(GO) vet -mod=mod ./... && CONSUL_BIN='$(CONSUL)' JORC_BIN='$(abspath $(BIN)/browser/jorc)' $(GOTEST) ./... -mod=mod -count=1 -timeout 15m $(BROWSER_FLAGS)

.PHONY: check
check: lint platforms vuln test ## lint, look for known vulnerabilities, and run all tests

# Where operators run jorc beside Linux: one architecture of each system, as they share all files, the one whose binary is
# larger. lint resolves their types, which takes seconds; compiling all modules takes minutes for each.
PLATFORMS  = darwin/amd64 windows/amd64 freebsd/amd64
MOST_BYTES = 40000000

NOTICE_TOOL = cd tools/licenses && $(GO) run . -tags '$(TAGS)'

.PHONY: notice
notice: ## write NOTICE, with the licenses of all modules that jorc contains
	$(NOTICE_TOOL) ../..

.PHONY: lint
lint: ## gofumpt, go vet, the types on other systems, staticcheck, the licenses, the patches of regressions, and vale over the texts
	@unformatted=$$($(LINT) gofumpt -l $$(git ls-files --cached --others --exclude-standard '*.go' | while read -r f; do [ -e "$$f" ] && echo "$$f"; done)); \
	[ -z "$$unformatted" ] || { printf 'not formatted (make fmt):\n%s\n' "$$unformatted" >&2; exit 1; }
	$(GO) vet -tags system,fleet,soak,packages ./...
	$(GO) run ./tools/platforms $(PLATFORMS) -- ./cmd/jorc ./internal/...
	$(NOTICE_TOOL) -check ../..
	GO='$(GO)' $(GO) run ./tools/regressions -check
	$(GO) run ./tools/fuzz -check
	$(LINT) staticcheck -tags system,fleet,soak,packages ./...
	@echo vale of all texts; CGO_ENABLED=1 $(LINT) vale --output=line $(PROSE)

.PHONY: platforms
platforms: ## vet jorc for the systems that operators use beside Linux, and check the size of its binary
	@for platform in $(PLATFORMS); do \
		echo "$(GO) vet and the binary's size for $$platform"; \
		export GOOS=$${platform%/*} GOARCH=$${platform#*/}; \
		$(GO) vet ./cmd/jorc ./internal/...; \
		program=$$(mktemp); \
		$(GO) build -buildvcs=false -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o "$$program" ./cmd/jorc; \
		bytes=$$(wc -c <"$$program"); rm "$$program"; \
		[ "$$bytes" -le $(MOST_BYTES) ] || { echo "jorc for $$platform has $$bytes bytes, want at most $(MOST_BYTES)" >&2; exit 1; }; \
	done

.PHONY: fmt
fmt: ## format all Go files
	$(LINT) gofumpt -w $$(git ls-files --cached --others --exclude-standard '*.go')

# govulncheck exits with 3 when it found something; with anything else it could
# not look, mostly because its database is out of reach.
.PHONY: vuln
vuln: ## govulncheck, where it can reach its data
	@status=0; timeout 300 $(LINT) govulncheck ./... || status=$$?; \
	case $$status in \
	0) ;; \
	3) exit 1 ;; \
	*) echo "govulncheck could not reach its data (https://vuln.go.dev); going on without it" ;; \
	esac

# Product Go: cmd and internal without the packages that only tests use.
.PHONY: loc
loc: ## count the lines and files of product Go, tests left out
	@git ls-files 'cmd/*.go' 'internal/*.go' | grep -v -e '_test\.go$$' -e '^internal/consultest/' -e '^internal/configtest/' -e '^internal/fleettest/' -e '^internal/ui/uitest/' -e '^internal/vaulttest/' \
		| xargs cat | wc -l | sed 's/$$/ lines/'
	@git ls-files 'cmd/*.go' 'internal/*.go' | grep -v -e '_test\.go$$' -e '^internal/consultest/' -e '^internal/configtest/' -e '^internal/fleettest/' -e '^internal/ui/uitest/' -e '^internal/vaulttest/' | wc -l | sed 's/$$/ files/'

.PHONY: reference
reference: ## write the chapters of docs/reference/ that are made from the code
	$(GO) test -count=1 ./cmd/jorc -run 'Chapter' -update

.PHONY: board
board: ## write the Grafana dashboards, which are made from the table of metrics
	$(GO) test -count=1 ./deploy/prometheus -run TestBoards -update

.PHONY: bench
bench: build consul bin/consul-template ## measure jorc beside consul-template and write docs/benchmarks.md
	CONSUL_BIN='$(CONSUL)' $(GO) run ./bench

.PHONY: bench-scale
bench-scale: build consul ## measure fleets of 100, 1,000 and 5,000 simulated agents and write docs/scale.md
	CONSUL_BIN='$(CONSUL)' $(GO) run ./bench -scale

.PHONY: bench-ui
bench-ui: build consul ## measure the dashboard of 5,000 stored hosts and write docs/ui-scale.md; needs chromium
	@command -v chromium >/dev/null || { echo "make bench-ui: missing: chromium (apt-get install chromium)" >&2; exit 1; }
	CONSUL_BIN='$(CONSUL)' $(GO) run ./bench -ui

.PHONY: bench-memory
bench-memory: build consul ## measure the memory of agents for two hours and write docs/memory.md
	CONSUL_BIN='$(CONSUL)' $(GO) run ./bench -memory 2h

.PHONY: demo
demo: build consul ## show the main job on real input, in seconds (the first time builds Consul, which takes minutes)
	@$(GO) build -o '$(BIN)/demo' ./demo
	@exec '$(BIN)/demo' -jorc '$(BIN)/jorc' -consul '$(CONSUL)'

.PHONY: clean
clean: ## remove what make built, bin/consul included
	rm -rf bin dist
