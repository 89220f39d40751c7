# What is checked before a change goes in. CI runs the same, see .ci/run.

GO        ?= go
# RACE=1 adds the race detector.
RACE      ?=
DETECT    := $(if $(RACE),-race)
# "make vet" is a step of its own.
TESTFLAGS ?= $(DETECT) -vet=off -timeout 20m
BENCHTIME ?= 1s
FUZZTIME  ?= 5s

# A test and the programs that it starts are compiled quickly, for the same cache: it takes half of the
# time. The tag keeps 6 MB out of the program: gin has MessagePack, which nothing here needs.
QUICK     := GOGC=400 GOFLAGS="$(shell $(GO) env GOFLAGS) '-gcflags=all=-dwarf=false -l' -tags=nomsgpack"
GOCACHE   := $(shell $(GO) env GOCACHE)

# What "make test" runs, and in which mode. Some packages wait, so there are more at once than processors.
# bridge/server begins first: it takes the longest to compile.
PACKAGES  ?= ./bridge/server ./...
SHORT     ?= -short
# Packages with tests that start programs: those tests are skipped in short mode (TestStarts).
STARTS    := ./integration ./docs ./examples/... ./cmd/internal/cli ./deploy/dist ./deploy/systemd ./internal/cluster/redis ./internal/oauth/login ./bridge/server/internal/admin/console
# The programs that tests start, but for those of which hardly any test needs one. Hundreds of fakeserver are
# started, each without the race detector.
SDK       := github.com/modelcontextprotocol/go-sdk/conformance
PROGRAMS  := ./cmd/bridge ./examples/everything ./integration/behind ./integration/eraserver ./integration/eraclient $(SDK)/everything-server $(SDK)/everything-client

# A Go command that is older than go.mod asks for gets that version.
export GOTOOLCHAIN := auto

# With the race detector every process would wait for a second when it ends, for
# reports of goroutines that still run. Ours have ended by then.
export GORACE ?= atexit_sleep_ms=0

# Of make dist: the version, by default that of the last tag of git, and the platforms, by default all.
VERSION   ?=
PLATFORMS ?=

.PHONY: help demo build dist check format tidy test vet lint integration packages soak mutants fuzz bench programs gotestsum shots

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The flags are those of "make test", which finds all of this compiled. The lines of
# "go build -v" are packages that were compiled just now. RUN has more flags of "mcp-bridge run". (An awk program
# would print them late: the awk of Debian keeps what it prints.)
demo: ## the bridge in front of an example server, on http://127.0.0.1:8808/mcp
	@echo 'Compiling the bridge and an example server, for a minute or two the first time.'
	@export $(QUICK); all=$$($(GO) list -deps ./cmd/bridge ./examples/everything | wc -l) && mkdir -p bin && \
	{ $(GO) build -v -o bin/mcp-bridge ./cmd/bridge && $(GO) build -v -o bin/everything ./examples/everything || echo 'FAILED'; } 2>&1 | \
	{ from='' to='\n'; if [ -t 1 ]; then from='\r\033[K' to=''; fi; \
	while IFS= read -r line; do case $$line in \
		FAILED) exit 1;; \
		*[!a-zA-Z0-9_./-]*) printf '\n%s\n' "$$line";; \
		*) n=$$((n+1)); printf "$$from[%d/%d] %s$$to" $$n $$all "$$line";; \
	esac; done; printf "$$from"; }
	@echo 'Calling a tool of the example server through the bridge: get-sum a=2 b=3'
	@bin/mcp-bridge call get-sum a=2 b=3 -- bin/everything stdio
	@exec bin/mcp-bridge run $(RUN) -- bin/everything stdio

build: ## the static binary, as bin/mcp-bridge
	CGO_ENABLED=0 $(GO) build -tags nomsgpack -trimpath -ldflags "-s -w" -o bin/mcp-bridge ./cmd/bridge

dist: ## the archives of a release, in dist: the same bytes for the same commit
	@$(GO) run ./deploy/dist -out dist $(if $(VERSION),-version $(VERSION)) $(if $(PLATFORMS),-platforms $(PLATFORMS))

check: format tidy test vet lint integration packages ## all that must pass; CI runs it with RACE=1

format: ## names the files that gofmt would change
	@echo '== gofmt'
	@unformatted=$$(find . -name '*.go' -not -path '*/node_modules/*' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

tidy: ## go.mod and go.sum say what the code needs
	@echo '== go mod tidy'
	@$(GO) mod tidy -diff

# It lists each skipped test with its reason, which go test itself hides.
GOTESTSUM := $(GOCACHE)/gotestsum$(DETECT)
gotestsum: # built as the tests are, so that nothing is compiled for it alone
	@export $(QUICK); $(GO) build $(DETECT) -o "$(GOTESTSUM)" gotest.tools/gotestsum

test: gotestsum ## all packages, in memory; RACE=1 with the race detector
	@echo '== go test $(SHORT) $(TESTFLAGS)'
	@export $(QUICK); "$(GOTESTSUM)" --format pkgname --hide-summary skipped -- $(SHORT) -p 4 $(TESTFLAGS) $(PACKAGES)

vet: ## go vet, with the flags of the tests, which find its packages compiled
	@echo '== go vet'
	@export $(QUICK); $(GO) vet $(DETECT) ./...

# What it reads of other packages is compiled as for the tests.
lint: ## staticcheck, in the version that go.mod names
	@echo '== staticcheck'
	@tool=$$($(GO) tool -n staticcheck) && export $(QUICK) && export GOFLAGS="$$GOFLAGS $(DETECT)" && $$tool ./... && cd examples/adapter && $$tool ./...

# A hash of the names and of the content of all files in folders.
hash       = { find $(1) -name node_modules -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 -n 1 git hash-object --no-filters; \
	find $(1) -name node_modules -prune -o -type f -print | LC_ALL=C sort; echo "$$BRIDGE_TEST_REQUIRE"; } | git hash-object --stdin

# The folder's name is a hash of the programs, of what they read, and of which other programs there are: while that
# is the same, the go command has the results of the tests.
programs: # builds what tests start, and prints the folder
	@set -e; export $(QUICK); kept="$(GOCACHE)/programs"; mkdir -p "$$kept"; find "$$kept" -mindepth 1 -maxdepth 1 -mtime +1 -exec rm -rf {} +; \
	new=$$(mktemp -d "$$kept/new.XXXXXX"); trap 'rm -rf "$$new"' EXIT; build="$(GO) build -buildvcs=false -ldflags=-w"; \
	$$build $(DETECT) -o "$$new/$(if $(RACE),race,plain)/" $(PROGRAMS); $$build -o "$$new/plain/" ./integration/fakeserver; \
	for other in node redis-server nginx chromium dbus-run-session buildah rpm python3; do command -v $$other || echo no $$other; done > "$$new/others"; \
	hash=$$( { cd "$$new"; $(call hash,.); cd "$(CURDIR)"; $(call hash,integration examples Makefile); } | git hash-object --stdin); \
	[ -d "$$kept/$$hash" ] || mv "$$new" "$$kept/$$hash"; touch "$$kept/$$hash"; echo "$$kept/$$hash"

integration: gotestsum ## one of each kind of dialogue between real programs
	@echo '== tests that start programs'
	@programs=$$($(MAKE) -s --no-print-directory programs) && export BRIDGE_TEST_PROGRAMS="$$programs" $(QUICK) && "$(GOTESTSUM)" --format pkgname -- -p 4 $(TESTFLAGS) $(STARTS)

# What the tests of the packages read. ALWAYS=1 runs them though they have passed before.
PACKAGED  := deploy config cmd examples go.mod go.sum docs/install.md docs/observability.md docs/bridge.schema.json bridge/server/internal/metrics/testdata
packages: gotestsum ## the Helm chart and the image, whose tests are a module of their own
	@echo '== deploy/check'
	@set -e; passed="$(GOCACHE)/packages-$$($(call hash,$(PACKAGED)))"; \
	if [ -z "$(ALWAYS)" ] && [ -e "$$passed" ]; then echo 'Nothing of it has changed since these tests passed.'; exit; fi; \
	export $(QUICK); cd deploy/check; $(GO) mod tidy -diff; $(GO) vet ./...; "$(GOTESTSUM)" --format pkgname -- -vet=off -timeout 15m ./...; \
	touch "$$passed"

# Without the race detector run those that compute in one goroutine, and memory: the collector of a starved process
# begins late.
soak: ## everything in full, for an hour and more: all pairings and suites, large tests, fuzz, packages
	@BRIDGE_TEST_MATRIX=all $(MAKE) test RACE= SHORT= PACKAGES="$$($(GO) list ./... | grep -v /integration$$)" TESTFLAGS='$$(DETECT) -vet=off -timeout 60m'
	@BRIDGE_TEST_MATRIX=all $(MAKE) test integration RACE=1 TESTFLAGS='$$(DETECT) -vet=off -timeout 60m'
	@BRIDGE_TEST_MEMORY=1 $(GO) test -count 1 -timeout 30m -run '^TestMemory$$' ./integration
	@$(MAKE) packages ALWAYS=1
	@$(MAKE) fuzz FUZZTIME=300x
	@$(MAKE) bench ONCE=1
	@$(MAKE) mutants

# UPDATE=1 tries all mutants, and writes the list.
mutants: ## breaks the core in thousands of ways, which the tests must notice
	@export $(QUICK) && $(GO) run ./integration/mutants $(if $(UPDATE),-update)

# The awk program turns go's lines, BenchmarkCall/WAY/SIZE, into rows.
# ONCE=1 makes each call once, with the build of the tests: it shows no figures, only
# that the benchmark works.
bench: ## what a call through the bridge costs, beside a direct one
	@$(if $(ONCE),export $(QUICK);) $(GO) test $(if $(ONCE),$(DETECT)) -run '^$$' -bench '^BenchmarkCall$$' -benchtime $(if $(ONCE),1x,$(BENCHTIME)) ./bridge/server > bench.out || { cat bench.out; exit 1; }
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
