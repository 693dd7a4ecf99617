# Warren. `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO       ?= go
DOCKER   ?= docker
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
# Tests do not vet: make lint does, and for it all dependencies are analysed, once for each way to compile.
NOVET    := -vet=off
# Flags of every test run: `invariants` turns the expensive self-checks on.
TESTFLAGS ?= -tags invariants -race $(NOVET)
# Go as nodes are built. Tests without the race detector use it, too: with cgo all that is above package net would be compiled a third time.
PLAIN    := CGO_ENABLED=0 $(GO)
FUZZTIME ?= 30s
# How many inputs `make test` tries at each decoder of the protocol. A number and not a time: until
# Go 1.27 a run that ends by its clock may fail without a finding (go.dev/issue/75804).
FUZZSAMPLE ?= 27000x
# How many inputs may be spent on making a new one smaller: these are not counted above.
FUZZMINIMIZE ?= 1000x
SOAKTIME ?= 10m
BENCHTIME ?= 1s
# Which benchmarks of packages make bench-packages runs, how often each, and the file that it appends to.
BENCH ?= .
BENCHCOUNT ?= 1
BENCHOUT ?= $(RUN)/bench/$(VERSION).txt
# The tests with real nodes that measure how long something takes: they run one by one.
TIMED := ^(TestRollingRestart|TestDelayedMessagesSurviveEveryNode|TestExpiryOnTime|TestNewQueuesAnswerAtOnce)$$
# The tests with real nodes that make test-process runs with the race detector in the nodes, and only so: they are some four times slower with it. Each
# protocol, each kind of login, administration, the move, a failover. make test-race takes all, make test-jepsen breaks such nodes in all ways.
RACESAMPLE := ^(TestAMQPS|TestHTTPS|TestCertificatesRotate|TestGRPC|TestUsers|TestRabbitHole|TestRabbitmqadmin|TestTransactions|TestDeadLetter|TestDeathCases|TestExchange|TestExpiry|TestPublish|TestDeliver|TestRedrive|TestPeek|TestTopologyVerbs|TestConnectionsAPI|TestTraces|TestDirectReply|TestCases|TestForeignClients|TestFailover|TestSingleActiveConsumer|TestRetryJobInPeace|TestReplicaVerbs|TestDelayedExchange|TestLimits|TestWire|TestGarbage|TestCleanStop|TestStorm)$$
# How long make jepsen and make jepsen-long go on, and their first seed (0: by chance).
JEPSENSAMPLE ?= 5m
JEPSENTIME ?= 3h
# How long make differential goes on, and its first seed.
DIFFTIME ?= 5m
DIFFSEED ?= 1
# More for it, such as -mixes=quorum,quorum-policies for some of its mixes of queues, or -wire=all for wrong frames in place of sequences.
DIFFFLAGS ?=
JEPSENSEED ?= 0
# How long make storm goes on, and its first seed (0: by chance). More for it, such as -time=2m (of each storm), -calm (no node comes to harm), -v.
STORMTIME ?= 10m
STORMSEED ?= 0
STORMFLAGS ?=
# How much virtual time make test-sim goes through, some 12 minutes a second on two cores (8 minutes at most), and its first seed: a fixed one, so
# that a change is judged by what the one before it passed. New seeds, and as much time as one likes, are for make sim-long.
SIMSAMPLE ?= 700m
SIMSEED ?= 1
# How long make sim-long goes on, with new seeds.
SIMTIME ?= 1h
# More for it, such as -deep.virtual=10000m (end there), -deep.parallel=4 (seeds at a time, default one a core), -deep.overlap=1s (of leases, at most).
SIMFLAGS ?=
# More for k8s-test, such as -only=rollout,kill for some of its scenarios.
K8SFLAGS ?=
RUN      := .run

BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.13.2

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# No debug information: nothing here uses it, and it is an eighth of all compiling. Whoever debugs calls go by himself, or empties it.
DWARF ?= -gcflags=all=-dwarf=false
export GOFLAGS := $(strip $(GOFLAGS) $(DWARF))

##### build and run

.PHONY: build
build: page ## build bin/warren
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/warren ./cmd/node

.PHONY: page
page: ## make the management page that bin/warren embeds, by the npm packages of web/package-lock.json; without npm there is none
	@$(PLAIN) run ./web/bundle -if-possible

.PHONY: image
image: page ## build the container image warren:VERSION with docker or what DOCKER names
	$(DOCKER) build -t warren:$(VERSION) --build-arg VERSION=$(VERSION) .

.PHONY: run
run: build ## start one node: AMQP 5672, HTTP 15672, gRPC 5680, data in ./data
	@exec bin/warren serve

.PHONY: cluster
cluster: build ## start three nodes: AMQP 5672-5674, HTTP 15672-15674, data in ./.run
	@trap 'wait' EXIT INT TERM; \
	for n in 0 1 2; do \
	  bin/warren serve --node-id "warren-$$((n + 1))" --data-dir "$(RUN)/cluster/warren-$$((n + 1))" \
	    --amqp-addr "127.0.0.1:$$((5672 + n))" --http-addr "127.0.0.1:$$((15672 + n))" \
	    --grpc-addr "127.0.0.1:$$((5680 + 10 * n))" --cluster-addr "127.0.0.1:$$((5681 + 10 * n))" \
	    --gossip-addr "127.0.0.1:$$((5682 + 10 * n))" \
	    --join 127.0.0.1:5682,127.0.0.1:5692,127.0.0.1:5702 --bootstrap-expect 3 & \
	done; wait

.PHONY: demo
demo: build ## run the retry job on three nodes while the leader's node is killed again and again
	$(GO) run ./cmd/demo --binary bin/warren $(DEMOFLAGS)

##### the gRPC API

.PHONY: api
api: ## generate the Go code of the gRPC API from api/warren/v1
	api/buf.sh format -w
	cd api && ./buf.sh generate

.PHONY: api-check
api-check: test-deps ## check the gRPC API: its form, that nothing of what was released is broken, and that the Go code is that of the files
	api/buf.sh lint
	api/buf.sh format --diff --exit-code
	api/buf.sh breaking --against released.binpb
	@mkdir -p $(RUN)/api && rm -rf $(RUN)/api/*
	api/buf.sh generate --output ../$(RUN)/api
	for f in $(RUN)/api/warren/v1/*.go; do cmp "$$f" "api/warren/v1/$${f##*/}"; done

.PHONY: api-release
api-release: ## note the gRPC API as it is now as released: what breaks it fails api-check
	api/buf.sh build -o released.binpb

##### test

.PHONY: test
test: BESIDE := nice -n 19 $(MAKE) k8s-compile
test: test-unit api-check test-budget fuzz-sample test-process k8s-validate test-page-and-sim test-jepsen ## run all tests; installs what they need first

.PHONY: test-unit
# Three packages at a time on two cores: what starts no processes waits for a third of its time. Those that take longest come first: what begins last runs alone at the end.
test-unit: test-deps ## run the tests that start no processes
	$(GO) run ./test/again $(TESTFLAGS) -timeout 15m -p 3 -- $$($(GO) list ./store ./catalog ./client ./... | grep -v -e '/sim$$' -e /sim/ -e /test/process -e /test/browser -e /test/netns -e '/test/upgrade$$' -e '/jepsen$$')
	$(GO) test -race $(NOVET) -tags failpoints -timeout 1m ./failpoint

.PHONY: test-budget
test-budget: ## compare what a message allocates with cmd/node/testdata/budget.txt
	$(PLAIN) test $(NOVET) -count=1 -timeout 5m -run '^TestBudget$$' ./cmd/node

.PHONY: k8s-validate
k8s-validate: ## check the manifests of deploy/k8s: fields, rules, settings, and that the files made from the chart are those of the chart
	cd deploy/k8s/check && $(PLAIN) test $(NOVET) -timeout 10m ./...

# Kubernetes' modules, which the check needs, are two minutes of compiling. The tests in network namespaces wait for more than half of their time: make test has that done beside them.
.PHONY: k8s-compile
k8s-compile:
	cd deploy/k8s/check && $(PLAIN) test $(NOVET) -run '^$$' ./...

.PHONY: k8s-test
k8s-test: page ## run the manifests on a real Kubernetes of this machine, under load: an upgrade, restarts, evictions, lost volumes, new keys and certificates, more pods. Root; half an hour to build it the first time
	deploy/k8s/test/install.sh
	@mkdir -p $(RUN)/k8s/bin
	deploy/k8s/test/dockerfile.sh $(RUN)/k8s/bin/warren.tar $(VERSION)
	CGO_ENABLED=0 $(GO) build -trimpath -tags level1 -ldflags '$(LDFLAGS)' -o $(RUN)/k8s/bin/warren-level1 ./cmd/node
	cd deploy/k8s/check && $(GO) build -trimpath -o $(CURDIR)/$(RUN)/k8s/bin/render ./render
	cd deploy/k8s/test && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/$(RUN)/k8s/bin/pause ./pause && \
	  $(GO) build -trimpath -o $(CURDIR)/$(RUN)/k8s/bin/kube ./kube && $(GO) build -trimpath -o $(CURDIR)/$(RUN)/k8s/bin/test . && \
	  $(GO) test -trimpath . ./rig
	run() { $(RUN)/k8s/bin/test -dir $(RUN)/k8s/run -bin $(RUN)/k8s/bin "$$@"; }; \
	{ if [ -n '$(K8SFLAGS)' ]; then run $(K8SFLAGS); else run; run -tls -only=publish,certificate; fi; } | tee $(RUN)/k8s/log

.PHONY: test-process
test-process: test-deps test-nodes ## run the tests with real nodes and foreign clients, those in network namespaces too (root)
	$(PLAIN) run ./test/again -tags invariants $(NOVET) -count=1 -timeout 25m -parallel 6 -skip '$(TIMED)|$(RACESAMPLE)' -- ./test/process/...
	$(or $(BESIDE),true) > /dev/null 2>&1 & trap "kill $$! 2> /dev/null || true" EXIT; \
	$(PLAIN) run ./test/again -tags invariants $(NOVET) -count=1 -timeout 20m -p 1 -parallel 4 -- ./test/netns/... ./test/upgrade/...; \
	wait
	$(PLAIN) run ./test/again -tags invariants $(NOVET) -count=1 -timeout 10m -parallel 1 -run '$(TIMED)' -- ./test/process
	WARREN_TEST_RACE=1 $(GO) run ./test/again $(TESTFLAGS) -count=1 -timeout 25m -parallel 3 -run '$(RACESAMPLE)' -- ./test/process

# The tests link the nodes, of which they have three kinds. That all is compiled before spares each of those that wait for the same kind a slot of -parallel.
.PHONY: test-nodes
test-nodes: page
	for tags in '' failpoints level1; do $(PLAIN) list -export -tags "$$tags" -f '{{""}}' ./cmd/node; done

.PHONY: test-race
test-race: test-deps ## all tests with real nodes with the race detector and the expensive self-checks in them; some fifteen minutes where nothing else runs
	WARREN_TEST_RACE=1 $(GO) test $(TESTFLAGS) -count=1 -timeout 40m -p 1 -parallel 3 ./test/process/... ./test/netns/... ./test/upgrade/...

# The commit whose program make upgrade-fixture and make upgrade-test take as the former one.
COMMIT ?= HEAD

# Takes a commit's tree into ./.run/former/src, and builds there.
FORMER := rm -rf $(RUN)/former && mkdir -p $(RUN)/former/src && git archive "$(COMMIT)" | tar x -C $(RUN)/former/src && cd $(RUN)/former/src && CGO_ENABLED=0 $(GO) build

.PHONY: upgrade-fixture
upgrade-fixture: ## write the folders in test/upgrade/testdata anew, by the program of COMMIT
	$(FORMER) -tags failpoints -o ../level2 ./cmd/node && CGO_ENABLED=0 $(GO) build -tags failpoints,level1 -o ../level1 ./cmd/node
	for l in 1 2; do $(GO) run ./test/upgrade/make -binary $(RUN)/former/level$$l -out test/upgrade/testdata/level$$l.tar.gz; done
	git rev-parse "$(COMMIT)^{commit}" > test/upgrade/testdata/COMMIT

.PHONY: upgrade-test
upgrade-test: ## upgrade and downgrade between this program and that of COMMIT
	$(FORMER) -o ../warren ./cmd/node
	WARREN_TEST_OLDER=$(CURDIR)/$(RUN)/former/warren $(GO) test -count=1 -v ./test/upgrade

.PHONY: test-jepsen
test-jepsen: ## a minute or two of the harness on a cluster under all faults
	WARREN_TEST_RACE=1 $(GO) test $(TESTFLAGS) -count=1 -timeout 15m ./jepsen

.PHONY: jepsen
jepsen: ## break a cluster in all ways for JEPSENSAMPLE and check what clients saw; reports in ./.run/jepsen
	$(GO) run ./jepsen/cmd --workload all --nemesis all --time 25s --slack 3 --seed $(JEPSENSEED) --budget $(JEPSENSAMPLE) --out $(RUN)/jepsen

.PHONY: jepsen-seeded
jepsen-seeded: ## sow bugs into nodes one by one and see that the harnesses find each of them
	$(GO) test -count=1 -timeout 50m -run 'TestSeededFaults$$' -v ./jepsen -jepsen.seeded

.PHONY: jepsen-long
jepsen-long: ## the same for JEPSENTIME with new seeds, over all combinations, of 3 and of 5 nodes
	$(GO) run ./jepsen/cmd --workload all --nemesis all --time 60s --slack 6 --nodes 3,5 --seed $(JEPSENSEED) --budget $(JEPSENTIME) --out $(RUN)/jepsen --go-on

.PHONY: test-sim
# The race detector makes them six times slower and finds little in them: one seed of each has it.
test-sim: ## run the tests with simulated clusters, for SIMSAMPLE of virtual time with seeds from SIMSEED on
	$(PLAIN) run ./test/again -tags invariants $(NOVET) -timeout 15m -- ./sim/...
	for s in sim deep meta; do $(GO) test $(TESTFLAGS) -timeout 10m -run '^(TestSeeds|TestMembersMove)$$' "./sim/$${s#sim}" "-$$s.seeds=1"; done
	$(PLAIN) test -tags invariants $(NOVET) ./sim/deep -run '^TestSeeds$$' -count=1 -timeout 20m -deep.first=$(SIMSEED) -deep.load=20m -deep.calm -deep.virtual=$(SIMSAMPLE) -deep.time=8m -deep.overlap=2s
	$(PLAIN) test -tags invariants $(NOVET) ./sim/deep -run '^TestSleepers$$' -count=1 -timeout 20m -deep.first=$(SIMSEED) -deep.load=3m -deep.virtual=60m -deep.time=2m -deep.overlap=2s

.PHONY: sim-long
sim-long: ## run simulated clusters (raft, store and transport in virtual time) with new seeds for SIMTIME
	$(GO) test -tags invariants ./sim/deep -run '^(TestSeeds|TestSleepers)$$' -v -timeout 0 -deep.first="$$(date +%s)" -deep.load=3m -deep.time=$(SIMTIME) -deep.overlap=2s $(SIMFLAGS)

.PHONY: sim-catalog
sim-catalog: ## run simulated catalogs (their Raft group on raft-boltdb, in virtual time) with new seeds for SIMTIME
	$(GO) test -tags invariants ./sim/meta -run '^TestSeeds$$' -v -timeout 0 -meta.first="$$(date +%s)" -meta.load=2m -meta.time=$(SIMTIME) $(SIMFLAGS)

.PHONY: scale
scale: ## print the tables of docs/scaling.md: 5 to 100 nodes and up to a million queues, by the model of sim/scale
	$(GO) test ./sim/scale -count=1 -run '^TestTables$$' -v -timeout 30m -scale.full

.PHONY: differential
differential: build ## send the same random sequences of AMQP methods to Warren and to RabbitMQ of Debian's packages for DIFFTIME, and show what differs (DIFFFLAGS: of what)
	$(GO) run ./test/differential -binary bin/warren -rabbitmq "$$(jepsen/rabbitmq.sh $(RUN)/rabbitmq)" -seed $(DIFFSEED) -time $(DIFFTIME) $(DIFFFLAGS)

.PHONY: storm
storm: page ## play clients that keep to no rules, of all protocols, at a cluster under faults and administration for STORMTIME, seed after seed; logs and traces in ./.run/storm
	$(GO) run ./test/storm/cmd -seed $(STORMSEED) -budget $(STORMTIME) -out $(RUN)/storm $(STORMFLAGS)

.PHONY: jepsen-rabbitmq
jepsen-rabbitmq: ## the same faults at Warren and at RabbitMQ of Debian's packages, and a table of both; half an hour
	$(GO) run ./jepsen/cmd --system warren,rabbitmq --rabbitmq "$$(jepsen/rabbitmq.sh $(RUN)/rabbitmq)" --judge=false \
	  --workload queue,deadletter --nemesis kill,partition,pause,restart --each --seeds 2 --time 25s --seed $(JEPSENSEED) --out $(RUN)/jepsen

.PHONY: test-crash
test-crash: ## stop, kill and cut nodes at every step of the move of dead letters, 10,000 messages each
	WARREN_CRASH_FULL=1 $(GO) test -tags invariants -count=1 -v -timeout 90m -parallel 2 -run '^TestCrash' ./test/process

.PHONY: test-page
test-page: test-deps ## check the page's types, and use it in Chromium on three real nodes; pictures in ./.run/page
	$(PLAIN) run ./web/bundle
	web/node_modules/.bin/tsc --noEmit -p web
	$(PLAIN) run ./test/again $(NOVET) -count=1 -timeout 10m -- ./test/browser

# Simulations need the processor alone and wait for nothing; the page's tests wait for more than half of their time.
.PHONY: test-page-and-sim
test-page-and-sim:
	@mkdir -p $(RUN)
	nice -n 19 $(MAKE) test-sim > $(RUN)/sim.log 2>&1 & sim=$$!; trap "kill $$sim 2> /dev/null || true" EXIT; \
	$(MAKE) test-page; if wait $$sim; then cat $(RUN)/sim.log; else cat $(RUN)/sim.log; exit 1; fi

.PHONY: test-deps
test-deps:
	@test/clients/install.sh

.PHONY: fuzz
fuzz: ## fuzz every decoder for FUZZTIME each
	@for package in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime $(FUZZMINIMIZE) "$$package"; \
	  done; \
	done

# The packages themselves are all that is compiled for coverage here: go test -fuzz compiles all that they depend on for it, which is twice the work of the inputs and more.
.PHONY: fuzz-sample
fuzz-sample: ## fuzz each decoder of the protocols with FUZZSAMPLE inputs
	@mkdir -p $(RUN)/fuzz
	for package in amqp gateway/grpc; do \
	  binary="$(CURDIR)/$(RUN)/fuzz/$${package##*/}"; \
	  $(PLAIN) test $(NOVET) -c -o "$$binary.test" -gcflags="./$$package=-d=libfuzzer" "./$$package"; \
	  for target in $$(cd "$$package" && "$$binary.test" -test.list '^Fuzz'); do ( cd "$$package" && echo "$$package $$target" && \
	    timeout 300 "$$binary.test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZSAMPLE) -test.fuzzminimizetime $(FUZZMINIMIZE) -test.fuzzcachedir "$$binary.found" \
	  ); done; \
	done

.PHONY: soak
soak: ## open and drop 10,000 connections in SOAKTIME on three nodes, declare and delete 20,000 queues, nothing may be left; expire 100,000 messages on time, and 200 among 10,000,000; 10,000,000 of mixed lifetimes in the log
	WARREN_SOAK=$(SOAKTIME) $(GO) test -tags invariants -count=1 -v -timeout 60m -run '^(TestSoak|TestQueueChurnLeavesNothing|TestExpiryOnTime|TestExpiryAmongMany)$$' ./test/process
	WARREN_MIXED=10000000 $(GO) test -count=1 -v -timeout 60m -run '^TestMixedLifetimes$$' ./store

.PHONY: soak-queues
soak-queues: ## declare and delete 20,000 queues in rounds of 500 on three nodes, nothing may be left; three minutes
	WARREN_SOAK=$(SOAKTIME) $(GO) test -tags invariants -count=1 -v -timeout 20m -run '^TestQueueChurnLeavesNothing$$' ./test/process

.PHONY: model
model: ## search all states of the move's model with spin; installs it first
	@dlx/model/check.sh

.PHONY: lint
lint: ## check formatting and run the linters
	$(GO) vet -tags invariants ./...
	$(GO) vet -tags failpoints ./failpoint ./cmd/node ./store ./fsm ./queue/leader
	$(GO) run $(GOLANGCI) run

##### measure

.PHONY: bench
bench: perf bench-packages ## run the benchmarks and a short load run on one and on three nodes
	docs/benchmarks/run.sh

.PHONY: bench-packages
bench-packages: ## run the packages' benchmarks BENCHCOUNT times and append to BENCHOUT, as benchstat reads it
	@mkdir -p "$(dir $(BENCHOUT))"
	$(GO) test -run '^$$' -bench '$(BENCH)' -count $(BENCHCOUNT) -benchmem -benchtime $(BENCHTIME) \
	  $$($(GO) list ./... | grep -v -e /test/process -e /test/browser -e /test/netns -e '/test/upgrade$$' -e '/jepsen$$') | tee -a "$(BENCHOUT)"

.PHONY: bench-compare
bench-compare: ## compare two files of make bench-packages: OLD=file NEW=file
	@$(GO) run $(BENCHSTAT) "$(OLD)" "$(NEW)"

# More for bench-peers, such as -rows 1,8 -runs 5 -duration 5s, or -scale 0.01 -duration 1s to see that all works.
PEERSFLAGS ?=
PEERS := docs/benchmarks/peers

.PHONY: bench-peers
bench-peers: perf ## measure Warren beside RabbitMQ (Debian's packages) and NATS, interleaved; an hour or two, results in ./.run/peers
	@mkdir -p $(RUN)/peers
	cd $(PEERS) && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/$(RUN)/peers/peers . && \
	  CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/$(RUN)/peers/nats-server github.com/nats-io/nats-server/v2
	$(RUN)/peers/peers run -warren bin/warren -perf bin/warren-perf -nats-server $(RUN)/peers/nats-server \
	  -rabbitmq "$$(jepsen/rabbitmq.sh $(RUN)/rabbitmq)" -rabbitmq4 "$$([ "$$(id -u)" != 0 ] || $(PEERS)/rabbitmq4.sh $(RUN)/rabbitmq4)" -dir $(RUN)/peers $(PEERSFLAGS)

.PHONY: perf
perf: build ## build the load tool bin/warren-perf
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/warren-perf ./cmd/perf

##### generated files

.PHONY: generate
generate: ## write the generated files anew
	$(GO) generate ./...

.PHONY: k8s-render
k8s-render: ## write the manifests of deploy/k8s that are made from the chart
	cd deploy/k8s/check && $(GO) run ./render ..

.PHONY: generate-check
generate-check: generate ## fail when a generated file is out of date
	@git diff --exit-code --stat -- '*_gen.go' '*.pb.go'
