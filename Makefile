# The commands of the README. They install what is missing from Debian's packages (as root, or with sudo).
#
#   make run     build weir quickly and serve examples/site on http://127.0.0.1:8080/ and https://localhost:8443/ with PHP running
#   make test    formatting, lints, unit tests, simulator, integration tests against real programs
#   make conformance   what `make test` runs in short, at full length: attacks, reloads under load, scanners of TLS, other PHPs, containers,
#                      Kubernetes; STEP=HTTP/3: only the steps whose name contains this
#   make deb     a package for Debian; SUITE=trixie: for that release, in a root of its own
#   make dist    an archive for any Linux with glibc, with a program that installs it
#   make bench   weir and its peers side by side; figures to bench/runs/
#
# And to install it: make build, then make install as root (PREFIX, DESTDIR).

CARGO ?= cargo
LISTEN ?= 127.0.0.1:8080
# The address for https://localhost; empty: none.
LISTEN_HTTPS ?= 127.0.0.1:8443
PREFIX ?= /usr/local
# What takes the symbols out of installed programs; STRIP=true keeps them.
STRIP ?= strip
COMPLETIONS := bash-completion/completions zsh/site-functions fish/vendor_completions.d
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: all run test conformance bench build php install install-program install-service deb dist setup-run setup-test clean

all: build

build: php
	$(CARGO) build --locked --release

# weir-php, for every PHP that has headers here.
php:
	@$(MAKE) --no-print-directory -C php CARGO_TARGET_DIR=$(abspath $(TARGET))

# Builds nothing, so that root needs no Rust.
install: install-program install-service

# What is installed is stripped: a fifth of the size.
install-program:
	@test -x $(TARGET)/release/weir || { echo 'install: there is nothing to install yet: make build' >&2; exit 1; }
	install -D -m 755 -s --strip-program=$(STRIP) $(TARGET)/release/weir $(DESTDIR)$(PREFIX)/bin/weir
	install -d -m 755 $(DESTDIR)$(PREFIX)/lib/weir
	for program in $(TARGET)/php/weir-php*; do \
		[ ! -e "$$program" ] || install -m 755 -s --strip-program=$(STRIP) "$$program" $(DESTDIR)$(PREFIX)/lib/weir/; done
	$(TARGET)/release/weir man --write $(DESTDIR)$(PREFIX)/share/man
	install -d -m 755 $(foreach folder,$(COMPLETIONS),$(DESTDIR)$(PREFIX)/share/$(folder))
	$(TARGET)/release/weir completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/weir
	$(TARGET)/release/weir completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weir
	$(TARGET)/release/weir completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weir.fish

# The units of systemd, the user, log rotation, and a first configuration if there is none.
install-service:
	@packaging/service '$(DESTDIR)' $(PREFIX)

# A package for the Debian that this runs on; SUITE=trixie: for another one, in a root of its own, which takes root.
deb:
	@setup/install.sh build deb
	@setup/deb.sh $(TARGET) '$(SUITE)'

# An archive for any Linux with glibc, with a program that installs it.
dist: build
	@setup/dist.sh $(TARGET)

# Built with a profile of its own: the first page is there much sooner, from a program that is slower.
run: setup-run php
	$(CARGO) build --locked --profile quick
	@setup/run.sh $(TARGET)/quick/weir examples/site $(LISTEN) $(LISTEN_HTTPS)

test: setup-test
	@CARGO="$(CARGO)" setup/test.sh

conformance: setup-test build
	@setup/install.sh conformance
	@CARGO="$(CARGO)" setup/conformance.sh $(TARGET) "$(STEP)"

bench: setup-run build
	@bench/run

setup-run:
	@setup/install.sh build run

setup-test:
	@setup/install.sh build test
	@setup/pebble.sh $(TARGET)/pebble
	@setup/tools.sh $(TARGET)
	@setup/python.sh $(TARGET)
	@setup/node.sh $(TARGET)

clean:
	$(CARGO) clean
