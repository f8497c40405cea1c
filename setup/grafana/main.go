// Reads a dashboard as Grafana's own library does: unknown fields, wrong types and missing values are mistakes.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(os.Args[1])
	var read dashboard.Dashboard
	if err == nil {
		err = read.UnmarshalJSONStrict(text)
	}
	// The library returns an empty list of mistakes as an error, too.
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("=== %s: %d panels and rows\n", os.Args[1], len(read.Panels))
}
