# `make help` says what there is. Everything but the tools of `lint` and `test` is plain cargo.

TARGET := $(or $(CARGO_TARGET_DIR),target)

# Pinned: a newer release may know more licences and rules, and would fail a build that nobody changed.
DENY_VERSION := 0.20.2
DENY := $(TARGET)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

# Without a sanitizer it builds with the stable toolchain.
FUZZ_VERSION := 0.13.2
FUZZ := $(TARGET)/tools/cargo-fuzz-$(FUZZ_VERSION)/bin/cargo-fuzz
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
H11_VERSION := 0.16.0
H11 := $(TARGET)/tools/h11-$(H11_VERSION)
SECONDS ?= 15

# The library of the console's charts, which is committed: `make uplot` after a change.
UPLOT_VERSION := 1.6.32
UPLOT := crates/console/src/assets/uplot
# What `browser` judges pages by, which is not.
AXE_VERSION := 4.14.1
AXE := $(TARGET)/tools/axe-core-$(AXE_VERSION)

# Requests to try once it runs. README.md shows the answers.
define TRY
curl -i http://127.0.0.1:8080/hello
curl -s -o /dev/null -w '%{http_code}\n' 'http://127.0.0.1:8080/hello?[1-30]'
curl -s http://127.0.0.1:9901/metrics
endef
export TRY

.DEFAULT_GOAL := help
.PHONY: help run release quick test tour fuzz fuzz-h11 lint format-check clippy features deny audit doc bench browser faults replacement policies rollouts restarts bench-install micro uplot guard guard-tested guard-accept guard-layers build-tested build-guarded figures

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

FILE ?= routes.yaml
run: ## build quickly and serve FILE=routes.yaml on :8080, admin and console on 127.0.0.1:9901, with some traffic to look at (TRAFFIC=off: none)
	cargo build --profile quick --locked --bin tollgate
	@printf '\nTry, from another terminal:\n\n%s\n\n' "$$TRY"
	@exec scripts/first-run $(TARGET)/quick/tollgate $(FILE) http://127.0.0.1:8080 http://127.0.0.1:9901

release: ## build what is shipped, with all optimisation; ten minutes
	cargo build --release --locked --bin tollgate

quick: ## the tests that need no server: half a minute after the build
	scripts/run-tests --workspace --all-features --lib

# LARGE=on also runs the tests that fill databases for minutes, as CI does.
test: ## every test but the large ones (LARGE=on: those too); installs redis-server, redis-cli, openssl, faketime, curl, nginx, h2load, promtool, strace, PostgreSQL and MariaDB where they are missing
	scripts/require python3 redis-server redis-cli openssl faketime curl nginx h2load promtool strace postgres mariadbd
	scripts/run-tests --workspace --all-features \
		$(if $(LARGE),--and --workspace --all-features --test large)

# What is found that is new goes beside what is committed: copy what is worth keeping into fuzz/corpus.
fuzz: $(FUZZ) ## each target of fuzz/ for SECONDS=15
	scripts/require c++
	@for target in $(FUZZ_TARGETS); do \
		mkdir -p $(TARGET)/fuzz-corpus/$$target; \
		printf '\n--> %s\n' $$target; \
		$(FUZZ) run --sanitizer none --dev $$target $(TARGET)/fuzz-corpus/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(SECONDS) -max_len=8192 -verbosity=0 -print_final_stats=1 || exit 1; \
	done

fuzz-h11: build-tested $(H11) ## changed requests through the gateway, compared with what h11 reads, for SECONDS=15
	$(H11)/bin/python fuzz/h11/differential.py $(TARGET)/debug/tollgate --seconds $(SECONDS)

$(H11):
	scripts/require python3
	python3 -m venv $(H11) && $(H11)/bin/pip install --quiet h11==$(H11_VERSION) || { rm -rf $(H11); exit 1; }

$(FUZZ):
	cargo install --locked --debug --root $(TARGET)/tools/cargo-fuzz-$(FUZZ_VERSION) cargo-fuzz@$(FUZZ_VERSION)

lint: format-check clippy features deny ## formatting, clippy, licences and duplicates of dependencies

format-check:
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt || \
		{ echo 'lint: needs rustfmt: it comes with the toolchain (rustup component add rustfmt)' >&2; exit 1; }
	cargo fmt --check

clippy:
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy || \
		{ echo 'lint: needs clippy: it comes with the toolchain (rustup component add clippy)' >&2; exit 1; }
	cargo clippy --locked --workspace --all-features --all-targets -- -D warnings

# Small sets of features need only compile: clippy has judged their code with all of them.
features:
	cargo rustc --locked -p tollgate-limiter --lib --profile check -- -D warnings
	cargo rustc --locked -p tollgate-limiter --lib --features redis-core --profile check -- -D warnings
	cargo rustc --locked --no-default-features --lib --profile check -- -D warnings

deny: $(DENY)
	$(DENY) --locked check licenses bans sources

audit: $(DENY) ## known vulnerabilities of dependencies; fetches the RustSec database
	$(DENY) --locked check advisories

# `--debug`: it runs for a second, so optimising it costs more than it saves.
$(DENY):
	cargo install --locked --debug --root $(TARGET)/tools/cargo-deny-$(DENY_VERSION) cargo-deny@$(DENY_VERSION)

doc: ## the documentation of all crates, broken links being errors
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --workspace

# BENCH has its options: make bench BENCH="--peers tollgate,nginx --scenarios forward --seconds 2 --rounds 1"
bench: ## what a request costs here and in nginx, HAProxy, Traefik and Envoy, side by side; half an hour
	cargo build --release --locked
	cargo build --profile quick --locked --package tollgate-testing --example distance
	python3 bench $(BENCH)

browser: build-tested $(AXE) ## what chromium makes of the console, of HTTP/2, early hints, WebSockets and denials; two minutes
	scripts/require chromium chromedriver openssl
	python3 tests/browser/speaks_http.py $(TARGET)/debug/tollgate
	python3 tests/browser/console.py $(TARGET)/debug/tollgate $(AXE)/axe.min.js $(TARGET)/console
	scripts/require redis-server
	python3 tests/browser/team.py $(TARGET)/debug/tollgate $(AXE)/axe.min.js $(TARGET)/console
	scripts/require curl
	python3 tests/browser/tour.py $(TARGET)/debug/tollgate $(TARGET)/tour

tour: build-tested ## follows docs/tour.md in chromium, and makes its pictures anew; two minutes
	scripts/require chromium chromedriver curl
	python3 tests/browser/tour.py $(TARGET)/debug/tollgate docs/tour

$(AXE):
	scripts/require npm
	rm -rf $(AXE).part && mkdir -p $(AXE).part
	cd $(AXE).part && npm pack --silent axe-core@$(AXE_VERSION) >/dev/null && tar xzf axe-core-$(AXE_VERSION).tgz
	mv $(AXE).part/package $(AXE) && rm -rf $(AXE).part

uplot: ## the library of the console's charts, fetched anew in the version that stands above
	scripts/require npm
	rm -rf $(TARGET)/uplot && mkdir -p $(TARGET)/uplot $(UPLOT)
	cd $(TARGET)/uplot && npm pack --silent uplot@$(UPLOT_VERSION) >/dev/null && tar xzf uplot-$(UPLOT_VERSION).tgz
	cd $(TARGET)/uplot/package && cp LICENSE dist/uPlot.iife.min.js dist/uPlot.min.css $(CURDIR)/$(UPLOT)/
	echo $(UPLOT_VERSION) > $(UPLOT)/VERSION

faults: build-tested ## what fails here, in nginx and in HAProxy while one endpoint of three is broken; three minutes
	python3 bench/faults.py $(TARGET)/debug/tollgate

replacement: build-tested ## every endpoint of an upstream is replaced by DNS, twice, under load; half a minute
	scripts/require dnsmasq nginx wrk
	python3 bench/replacement.py $(TARGET)/debug/tollgate

# OUTAGE has the seconds that the database is away.
OUTAGE ?= 10
policies: build-guarded ## how fast a change of 10 000 strategies reaches ten nodes, and their database killed under load; three minutes
	scripts/require postgres redis-cli redis-server
	cargo build --locked --profile guard -p tollgate-policies --example editor
	python3 bench/policies.py $(TARGET)/guard/tollgate $(TARGET)/guard/examples/editor --outage $(OUTAGE)

rollouts: ## a limit that would deny three of ten requests is tried out on two nodes: how soon it is taken away, with the figures
	cargo test --locked --test policies rollout::a_candidate_that_would_deny -- --nocapture

restarts: build-tested ## ten hand-overs, ten restarts over inherited sockets and a minute of reloads under load; two minutes
	scripts/require curl nginx openssl redis-server wrk
	python3 bench/restarts.py $(TARGET)/debug/tollgate

bench-install: ## the other gateways that `bench` compares with, on Debian 12
	bench/install

micro: ## what the pieces of a request cost, one by one
	cargo bench --locked

# Times are not the same twice, instructions are. CI counts those of the build that tests run on, which is there: to build
# the optimised one takes longer than all else that CI does.
guard: guard-tested build-guarded ## the instructions of a request are no more than were accepted
	python3 bench/guard.py $(TARGET)/guard/tollgate

guard-tested: build-tested ## the same of the build that tests run on; takes seconds
	scripts/require valgrind python3
	python3 bench/guard.py $(TARGET)/debug/tollgate

guard-accept: build-tested build-guarded ## what `guard` counts is right from now on
	python3 bench/guard.py $(TARGET)/debug/tollgate --accept
	python3 bench/guard.py $(TARGET)/guard/tollgate --accept

# LAYERS has a part of a step's name, or --docs.
guard-layers: build-guarded ## the instructions that each optional step of a route adds to a forwarded request
	python3 bench/layers.py $(TARGET)/guard/tollgate $(LAYERS)

# Built by a test, so that in CI it is the program that the others have built; without the bookkeeping of incremental builds,
# as there, since that makes a difference of nearly 1 %.
build-tested:
	CARGO_INCREMENTAL=0 cargo test --locked --workspace --all-features --no-run --test cost

build-guarded:
	cargo build --locked --profile guard --bin tollgate

figures: ## how large and how plain the code is; FIGURES=--build also measures the compiler, for minutes
	scripts/require python3
	@scripts/figures $(FIGURES)
