# `make demo` and `make check` are the two to begin with. CI runs `make check`, then a few slow extras (.ci/run).
# Two number signs begin the help of a target.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

LINT  := bin/golangci-lint
TESTS := bin/gotestsum

# Tests of a package at once: most of them wait for processes, and leave a core idle.
PARALLEL := 4

# The sources of a checkout, by which programs know that they are of one build.
STAMP = $(shell git rev-parse -q --verify HEAD >/dev/null && { git rev-parse HEAD; git diff HEAD; } | git hash-object --stdin)

# What a release is built with: static files that say nothing of where they were built.
STATIC = -trimpath -ldflags "-s -w -X github.com/drover-dev/drover/internal/platform/buildinfo.stamp=$(STAMP)"

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## build bin/drover and run the tour: no API key, nothing is left behind
	@tools/build $(STATIC)
	@bin/drover demo

.PHONY: setup
setup: $(LINT) $(TESTS) ## fetch the modules and build the tools that check needs
	go mod download
	@for dir in $(OWN); do (cd test/$$dir && go mod download); done

$(LINT): tools/go.mod tools/go.sum
	cd tools && go build -buildvcs=false -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(TESTS): tools/go.mod tools/go.sum
	cd tools && go build -buildvcs=false -o ../$@ gotest.tools/gotestsum
	@touch $@

.PHONY: build
build: ## build the static programs bin/drover, bin/drover-keeper and bin/drover-hub
	CGO_ENABLED=0 go build $(STATIC) -o bin/ ./cmd/...

.PHONY: check
check: needs fmt size rules lint darwin race binary alone own repeat ## bring what the tests need, then run all of them, as CI does

.PHONY: needs
needs: ## install the programs that the tests call (on Debian as root), or name the missing packages
	@tools/needs

.PHONY: fmt
fmt: ## refuse files that gofmt would change
	@out=$$(gofmt -l .); \
	if [ -n "$$out" ]; then printf 'gofmt these files:\n%s\n' "$$out" >&2; exit 1; fi

.PHONY: rules
rules: ## the rules of the code and the generated pages, which take a second
	go test ./test/rules ./task

.PHONY: size
size: ## product lines of Go in each room, and the budget
	@git ls-files -- '*.go' | grep -vE '_test\.go$$|^(test|tools)/' | xargs wc -l | awk '$$2 != "total" { \
		n = split($$2, p, "/"); room = n == 1 ? "drover" : p[1] == "internal" ? p[1] "/" p[2] : p[1]; lines[room] += $$1; all += $$1 } \
		END { for (r in lines) print lines[r], r | "sort -rn"; close("sort -rn"); print all, "of", budget }' budget="$$(cat test/rules/budget.txt)"

.PHONY: vet
vet: ## go vet
	go vet ./...

.PHONY: lint
lint: $(LINT) ## golangci-lint, as .golangci.yml says
	$(LINT) run ./...
	@for dir in $(OWN); do (cd test/$$dir && ../../$(LINT) run ./...); done

.PHONY: test
test: ## all tests, without the race detector
	go test ./...

# Three packages run at once, also on two processors: their tests often wait.
#
# The suites of BINARY only drive the built program, which has no race detector there.
BINARY := rules|acp|agentsdk|attack|bench|conformance|counts|crash|faults|knownfailures|machines|soak|vendors

.PHONY: binary
binary: $(TESTS) ## the suites that drive the built program
	@$(TESTS) --format standard-quiet --hide-summary skipped \
		--packages "$$(go list ./test/... | grep -E '/test/($(BINARY))$$' | grep -vE '/test/(rules|counts|soak)$$')" -- -p 3 -timeout 20m

# What counts system calls and memory.
.PHONY: alone
alone: ## the suites that measure, one after the other, with nothing else at work
	go test -count=1 -p 1 -timeout 10m ./test/counts ./test/soak

# Suites with a module of their own, for what Drover itself does not depend on.
OWN := browser telemetry

.PHONY: own
own: ## the suites of the built program that have a module of their own
	@for dir in $(OWN); do (cd test/$$dir && go test -count=1 -timeout 20m ./...) || exit 1; done

.PHONY: race
race: $(TESTS) ## all tests with the race detector, but for the suites that drive the built program
	@$(TESTS) --format standard-quiet --hide-summary skipped \
		--packages "$$(go list ./... | grep -vE '/test/($(BINARY))$$')" -- -race -p 3 -timeout 20m -parallel $(PARALLEL)

# Where repetitions are fewer with the race detector; see test/racetest.
.PHONY: repeat
repeat: ## the tests that repeat something many times, in full, without the race detector
	go test -run '^(TestProcesses|TestGoroutines|TestCircles|TestSwapped|TestCut)$$' ./internal/project/todo ./internal/engine/spool ./internal/model/modelwire

.PHONY: darwin
darwin: ## build and vet for macOS
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build -trimpath ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go vet -trimpath ./cmd/... ./internal/engine/process ./internal/engine/keeper ./internal/engine/tty

.PHONY: docs
docs: ## write the generated pages anew
	go test ./internal/engine/lifecycle -run TestStatesPage -update
	go test ./internal/frontend/cli/manual -update
	go test ./internal/session/conversation -run TestPage -update
	UPDATE=1 go test ./internal/engine/sandbox -count=1 -run TestTable

.PHONY: pictures
pictures: ## take the pictures of the terminal UI anew, docs/pictures, with tmux
	PICTURES=1 go test ./cmd/drover -count=1 -run 'TestPictures|TestMovingPicture'

# The table; see docs/performance.md. SHORT=1 makes it small.
.PHONY: bench
bench: ## our figures beside their floors: make bench [SHORT=1] [ONLY=journal]
	@ONLY='$(ONLY)' go test ./test/bench -run '^$$' -bench Table -benchtime 1x $(if $(SHORT),-short) -timeout 10m

# kill -9 at every step; see docs/reliability.md.
.PHONY: crash
crash: ## kill -9 at each step of a task: make crash [SEEDS=20] [CELL=L6/host/once [SEED=7]], or at each call: make crash SWEEP=1 [N=tasks/17]
ifneq ($(SWEEP)$(N),)
	@cd test/crash && SWEEP='$(SWEEP)' N='$(if $(N),^($(N))$$)' go test -run 'TestSweep' -count 1 -parallel 3 -timeout 6h
else
	@go test -tags failpoint ./internal/platform/failpoint
	@cd test/crash && CRASH=all SEEDS='$(SEEDS)' CELL='$(CELL)' SEED='$(SEED)' go test -run 'TestMatrix' -count 1 -parallel 3 -timeout 6h
endif

# The conformance suite of MCP; see docs/mcp.md.
.PHONY: conformance
conformance: ## the conformance suite of MCP against Drover, in both revisions; needs npm
	DROVER_CONFORMANCE=1 go test ./test/conformance -count=1 -v

# The official JavaScript library of A2A, which the tests run too; see docs/remote-agents.md.
.PHONY: a2a
a2a: ## the official JavaScript library of A2A as client and as server; needs npm
	go test ./test/a2a -count=1 -v

# Agents of other vendors from npm as tasks; see docs/other-agents.md.
.PHONY: vendors
vendors: ## drive real agents of other vendors against a model on loopback: make vendors [VENDOR=codex]; needs npm, Linux on x64
	VENDORS=1 go test ./test/vendors -count=1 -v -timeout 30m -run 'TestVendors/$(VENDOR)'

# Faults of workers, hubs and links; see docs/machines.md.
.PHONY: machines
machines: ## break what tasks on other machines depend on: make machines [RUN=TestHubKilled]
	@MACHINES=all go test ./test/machines -run '$(or $(RUN),.)' -count 1 -v -timeout 20m

# The page in a real browser; see docs/web.md.
.PHONY: browser
browser: ## try the page of drover serve in Chromium; needs the program chromium: make browser [RUN=TestAnswers]
	@cd test/browser && BROWSER=1 go test . -run '$(or $(RUN),.)' -count=1 -v -timeout 10m

# Failures of such tools, and what becomes of them here; see docs/reliability.md.
.PHONY: known-failures
known-failures: ## failures of such tools, tried on the built program: make known-failures [FAILURE=orphans]
	@cd test/knownfailures && KNOWN_FAILURES=1 FAILURE='$(FAILURE)' go test -run TestKnownFailures -count 1 -timeout 10m

# Histories with crashes, and hosts at work for a long time; see docs/reliability.md.
.PHONY: sim
sim: EVENTS ?= 1000000
sim: ## random histories with crashes: make sim [EVENTS=1000000] [SEED=7 [STEPS=1-40,77]]
	@SIM_EVENTS='$(EVENTS)' SIM_SEED='$(SEED)' SIM_STEPS='$(STEPS)' go test ./test/sim $(if $(SEED),-run TestSim) -count 1 -v -timeout 6h

.PHONY: soak
soak: T ?= 20m
soak: ## two hosts at work for a long time: make soak [T=20m]
	@SOAK='$(T)' go test ./test/soak -count 1 -v -timeout 30h

# What Drover stands on is broken, and Drover itself; see docs/reliability.md.
.PHONY: faults
faults: ## break what Drover stands on: make faults [RUN=TestLogFails]
	@cd test/faults && FAULTS=all go test -run '$(or $(RUN),.)' -count 1 -v -timeout 1h | grep -E '^(--- |FAIL|ok)|--- FAIL|_test\.go:|NOT TRIED'

# What the rules approve is run in a cell, and looked at; see docs/reliability.md.
.PHONY: attack
attack: N ?= 500000
attack: SEED ?= 1
attack: ## run what the rules approve: make attack [N=500000] [SANDBOX=on|off] [SEED=1] [RESUME=DIR] [WIDE=1] [AT=1234 | LINES=FILE]
	@cd test/attack && export SEED='$(SEED)' RESUME='$(if $(RESUME),$(abspath $(RESUME)))' WIDE='$(WIDE)' AT='$(AT)' \
	  LINES='$(if $(LINES),$(abspath $(LINES)))'; status=0; \
	if [ '$(SANDBOX)' != on ]; then ATTACK='$(N)' go test -run 'TestAttack$$' -count 1 -v -timeout 24h || status=1; fi; \
	n='$(N)'; if [ -z '$(SANDBOX)' ]; then n=$$((n / 50)); fi; \
	if [ '$(SANDBOX)' != off ]; then ATTACK=$$n go test -run TestAttackSandboxed -count 1 -v -timeout 24h || status=1; fi; exit $$status

# What a release has; see .goreleaser.yaml.
RELEASER := bin/goreleaser
SBOM := bin/sbom
VULN := bin/govulncheck

$(RELEASER): tools/release/go.mod tools/release/go.sum
	cd tools/release && go build -buildvcs=false -o ../../$@ github.com/goreleaser/goreleaser/v2
	@touch $@

$(SBOM): tools/release/go.mod tools/release/go.sum tools/release/sbom/main.go
	cd tools/release && go build -buildvcs=false -o ../../$@ ./sbom
	@touch $@

$(VULN): tools/release/go.mod tools/release/go.sum
	cd tools/release && go build -buildvcs=false -o ../../$@ golang.org/x/vuln/cmd/govulncheck
	@touch $@

.PHONY: snapshot
snapshot: $(RELEASER) $(SBOM) ## make everything that a release has, in dist/, and look into it; nothing is published
	$(RELEASER) release --snapshot --clean --skip=publish,announce
	cd tools/release && DIST='$(CURDIR)/dist' go test -count 1 .

.PHONY: release
release: $(RELEASER) $(SBOM) ## publish the release of the tag that is checked out
	$(RELEASER) release --clean

.PHONY: vuln
vuln: $(VULN) ## known vulnerabilities of what the binary contains, if https://vuln.go.dev is reachable
	@out=$$($(VULN) ./... 2>&1) || { \
	  code=$$?; \
	  case "$$out" in \
	  *"fetching vulnerabilities"*) printf 'vuln: NOT CHECKED: https://vuln.go.dev is not reachable\n%s\n' "$$out"; exit 0;; \
	  esac; \
	  printf '%s\n' "$$out" >&2; exit "$$code"; \
	}; printf '%s\n' "$$out"

.PHONY: mutants
mutants: ## deliberate faults, each of which a test must see: make mutants [MUTANT=torn-line]
	@cd test/mutants && MUTANTS=all MUTANT='$(MUTANT)' go test -run 'TestFit|TestMutants' -count 1 -parallel 2 -timeout 2h

.PHONY: fuzz
fuzz: T ?= 30s
fuzz: ## every fuzz target in turn: make fuzz [T=5m]
	@grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
	    echo "== $$(dirname "$$file") $$target"; \
	    go test "$$(dirname "$$file")" -run '^$$' -fuzz "^$$target$$" -fuzztime $(T); \
	  done; \
	done

.PHONY: stress
stress: N ?= 100
stress: RUN ?= .
stress: ## one test many times: make stress PKG=./task RUN=TestEnding [N=100]
	@test -n "$(PKG)" || { echo 'make stress: say which package: PKG=./task' >&2; exit 2; }
	go test -race -failfast -count $(N) -run '$(RUN)' $(PKG)
