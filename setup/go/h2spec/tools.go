//go:build tools

// Names the program that setup/tools.sh builds, so that go.mod has what it needs.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
