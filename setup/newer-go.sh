# shellcheck shell=sh
# Read by scripts that build Go modules which need a newer Go than Debian has. From 1.21 on, Go gets a newer one by itself; an older one
# gets it here, as a module whose checksum it verifies.

command -v go >/dev/null || {
    echo 'setup: go is missing; setup/install.sh test installs it' >&2
    exit 1
}
minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
if [ "${minor:-0}" -lt 21 ]; then
    module=golang.org/toolchain@v0.0.1-go1.24.4.$(go env GOOS)-$(go env GOARCH)
    toolchain=$(go mod download -json "$module" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
    chmod -R u+w "$toolchain"
    chmod -R +x "$toolchain/bin" "$toolchain/pkg/tool"
    PATH="$toolchain/bin:$PATH"
fi
