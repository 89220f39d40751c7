# What is checked before a change goes in. CI runs the same, see .ci/run.

GO        ?= go
RACE      := $(if $(shell command -v $(firstword $(shell $(GO) env CC))),-race)
# As many packages at a time as there are processors: with more, leases of clusters end.
PACKAGES  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# "make vet" is a step of its own.
TESTFLAGS ?= $(RACE) -vet=off -timeout 30m -p $(PACKAGES)
BENCHTIME ?= 1s
FUZZTIME  ?= 5s

# A test and the programs that it starts are compiled quickly, for the same cache: the
# bridge with the race detector takes 147 s of processor time in place of 301 s. The tag
# keeps 6 MB out of the program: gin has MessagePack, which nothing here needs.
QUICK     := GOGC=400 GOFLAGS="$(shell $(GO) env GOFLAGS) '-gcflags=all=-dwarf=false -l' -tags=nomsgpack"

# A Go command that is older than go.mod asks for gets that version.
export GOTOOLCHAIN := auto

# With the race detector every process would wait for a second when it ends, for
# reports of goroutines that still run. Ours have ended by then.
export GORACE ?= atexit_sleep_ms=0

# The version of make dist: that of the last tag of git, unless it is given.
VERSION   ?=

.PHONY: help build dist check packages format tidy vet lint test alone soak bench fuzz shots

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the static binary, as bin/mcp-bridge
	CGO_ENABLED=0 $(GO) build -tags nomsgpack -trimpath -ldflags "-s -w" -o bin/mcp-bridge ./cmd/bridge

dist: ## the archives of a release, in dist: the same bytes for the same commit
	@$(GO) run ./deploy/dist -out dist $(if $(VERSION),-version $(VERSION))

check: format tidy vet lint test alone ## all that must pass

packages: ## the Helm chart and the image, whose tests are a module of their own
	@echo '== deploy/check'
	@tests=$$($(GO) tool -n gotestsum) && cd deploy/check && $(GO) mod tidy -diff && $(GO) vet ./... && $$tests --format pkgname -- -timeout 15m ./...

format: ## names the files that gofmt would change
	@echo '== gofmt'
	@unformatted=$$(find . -name '*.go' -not -path '*/node_modules/*' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

tidy: ## go.mod and go.sum say what the code needs
	@echo '== go mod tidy'
	@$(GO) mod tidy -diff

vet: ## go vet, with the flags of the tests, which find its packages compiled
	@echo '== go vet'
	@export $(QUICK); $(GO) vet $(RACE) ./...

# What it reads of other packages is compiled as for "make alone".
lint: ## staticcheck, in the version that go.mod names
	@echo '== staticcheck'
	@tool=$$($(GO) tool -n staticcheck) && export $(QUICK) && $$tool ./... && cd examples/adapter && $$tool ./...

# At the end gotestsum lists each skipped test with its reason, which go test
# itself hides. integration takes the longest by far: it begins first, and beside it
# server, whose tests mostly wait. integration builds the bridge: without the step
# before, go would compile its packages twice at once. What tests start is built once
# for all of them, in BRIDGE_TEST_PROGRAMS: see internal/programtest.
test: ## all tests; with the race detector where there is a C compiler
	@echo '== go test $(TESTFLAGS) ./...'
	@$(if $(RACE),,echo 'There is no C compiler: the race detector is off.')
	@export $(QUICK); programs=$$BRIDGE_TEST_PROGRAMS; \
	if [ -z "$$programs" ]; then programs=$$(mktemp -d) && trap 'rm -rf "$$programs"' EXIT || exit 1; fi; \
	$(GO) build $(RACE) ./bridge/server ./config ./cmd/internal/... && \
	$(GO) build $(RACE) -o "$$programs/gotestsum" gotest.tools/gotestsum && \
	BRIDGE_TEST_PROGRAMS=$$programs "$$programs/gotestsum" --format pkgname -- $(TESTFLAGS) ./integration ./bridge/server ./...

alone: ## tests that compute for long in one goroutine, without the race detector
	@echo '== go test, without the race detector'
	@export $(QUICK); $(GO) test -vet=off -count 1 -timeout 30m $$(grep -rl --include='*_test.go' --exclude-dir=node_modules scaletest.Unraced . | xargs -n 1 dirname | sort -u)

# Memory is measured by itself: the collector of a starved process begins late.
soak: ## all tests, in full: every pairing of clients, servers, transports and revisions, and more repetitions
	@BRIDGE_TEST_MATRIX=all $(MAKE) test alone
	@BRIDGE_TEST_MEMORY=1 $(GO) test -count 1 -timeout 30m -run '^TestMemory$$' ./integration

# The awk program turns go's lines, BenchmarkCall/WAY/SIZE, into rows.
# ONCE=1 makes each call once, with the build of the tests: it shows no figures, only
# that the benchmark works.
bench: ## what a call through the bridge costs, beside a direct one
	@$(if $(ONCE),export $(QUICK);) $(GO) test $(if $(ONCE),$(RACE)) -run '^$$' -bench '^BenchmarkCall$$' -benchtime $(if $(ONCE),1x,$(BENCHTIME)) ./bridge/server > bench.out || { cat bench.out; exit 1; }
	@awk ' \
		BEGIN { printf "%-6s %-12s %14s %10s %14s %12s\n", "size", "way", "ns/call", "x direct", "bytes/call", "allocs/call" } \
		/^BenchmarkCall\// { \
			split($$1, name, "/"); sub(/-[0-9]+$$/, "", name[3]); \
			for (i = 3; i <= NF; i++) value[$$i] = $$(i-1); \
			if (name[2] == "direct") { direct = value["ns/op"]; if (rows++) print "" } \
			printf "%-6s %-12s %14d %10.2f %14d %12d\n", name[3], name[2], value["ns/op"], value["ns/op"] / direct, value["B/op"], value["allocs/op"] \
		}' bench.out
	@echo; echo 'Bytes and allocations are those of the bridge; the server is a process of its own.'

# Each package is built once for all of its targets. What is found to be interesting is
# kept where go test keeps it.
fuzz: ## every fuzz target for FUZZTIME
	@set -e; export $(QUICK); dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; kept=$$($(GO) env GOCACHE)/fuzz; \
	grep -rlE --include='*_test.go' --exclude-dir=node_modules '^func Fuzz' . | xargs -n 1 dirname | sort -u | while read -r package; do \
		echo "== $$package"; \
		rm -f "$$dir/fuzz.test"; $(GO) test -c -vet=off -fuzz Fuzz -o "$$dir/fuzz.test" "$$package"; path=$$($(GO) list "$$package"); \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$package"/*_test.go); do \
			echo "$$target"; \
			(cd "$$package" && "$$dir/fuzz.test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 5x -test.fuzzcachedir "$$kept/$$path" < /dev/null); \
		done; \
	done

# Clients call six servers for some minutes before: charts need something to show.
shots: ## the pictures of README.md and docs, made by Chromium
	@export $(QUICK); $(GO) test -vet=off -count 1 -timeout 30m -run '^TestShots$$' -v ./integration -shots
