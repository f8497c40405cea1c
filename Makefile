# The commands of the README. They install what is missing from Debian's packages (as root, or with sudo).
#
#   make run     build weir and serve examples/site on http://127.0.0.1:8080/ with PHP running
#   make test    formatting, lints, unit tests, simulator, integration tests against real programs
#   make bench   weir and its peers side by side; figures to bench/runs/

CARGO ?= cargo
LISTEN ?= 127.0.0.1:8080

.PHONY: all run test bench build php setup-run setup-test clean

all: build

build: php
	$(CARGO) build --locked --release

# weir-php, for every PHP that can be embedded here.
php:
	@$(MAKE) --no-print-directory -C php CARGO_TARGET_DIR=$(abspath $(or $(CARGO_TARGET_DIR),target))

run: setup-run build
	@setup/run.sh target/release/weir examples/site $(LISTEN)

test: setup-test
	@CARGO="$(CARGO)" setup/test.sh

bench: setup-run build
	@bench/run

setup-run:
	@setup/install.sh build run

setup-test:
	@setup/install.sh build test

clean:
	$(CARGO) clean
