package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/terminal"
)

// The programs that the first start prints. They are whole, and a test runs them.
//
//go:embed quickstart/*.txt
var quickstarts embed.FS

var quickstartLanguages = []struct{ file, name string }{{"typescript", "TypeScript or JavaScript"}, {"python", "Python"}, {"go", "Go"}}

// quickstart is what the first start prints.
func quickstart(url, key, model string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "Perdure serves %s\n\nAPI key, shown only now:\n\n  %s\n", url, key)
	for _, language := range quickstartLanguages {
		program, err := quickstartProgram(language.file, url, key, model)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n── %s ──\n\n%s", language.name, program)
	}
	fmt.Fprintf(&b, "\n── Here ──\n\n%s\n\n", "PERDURE_API_KEY="+key+" "+terminal.Quote("perdure", "run", "--url", url)+` "…"`)
	return b.String(), nil
}

func quickstartProgram(language, url, key, model string) (string, error) {
	text, err := quickstarts.ReadFile("quickstart/" + language + ".txt")
	if err != nil {
		return "", fmt.Errorf("read the quick start: %w", err)
	}
	return strings.NewReplacer("{{url}}", url, "{{key}}", key, "{{model}}", model).Replace(string(text)), nil
}
