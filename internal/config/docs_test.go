package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

const page = "../../docs/configuration.md"

const introduction = `# Configuration

Everything has a default. What is set in the configuration file replaces it, what is set in the environment replaces that,
and flags of a command come last. The file is named by ` + "`--config` or `PERDURE_CONFIG`, or is `perdure.yaml`" + ` in the data
directory. A key that is not known is an error that names the line. ` + "`perdure config show`" + ` prints what is in force, without
secrets, and ` + "`perdure config check`" + ` checks it.

Model providers are found in the environment: ` + "`ANTHROPIC_API_KEY`" + ` (with ` + "`ANTHROPIC_BASE_URL`" + `), and ` + "`OPENAI_API_KEY` or `OPENAI_BASE_URL`" + `
for any server that is compatible with OpenAI's. Several at once, and their models, are set in the file:

` + "```yaml" + `
providers:
  - name: anthropic
    kind: anthropic
    api_key_file: /etc/perdure/anthropic.key
  - name: local
    kind: openai
    base_url: http://127.0.0.1:11434/v1
    models: ["llama*", "qwen*"]
` + "```" + `

A model is chosen by its id: ` + "`claude-*`" + ` goes to a provider of kind anthropic, others to one of kind openai, or to the one whose
` + "`models`" + ` name it; ` + "`local/qwen3`" + ` names the provider; ` + "`scripted/…`" + ` is always a [scripted model](scripted-models.md).
`

// TestDocumentation compares the page with the comments of the struct, which it is made from.
func TestDocumentation(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]*ast.StructType{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString("\n| key | environment | meaning |\n|---|---|---|\n")
	describe(&b, structs, "Config", "", "PERDURE_")
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("docs/configuration.md is not what the comments in config.go say; run this test with -update")
	}
}

// TestDocumentedExample loads the example of the page.
func TestDocumentedExample(t *testing.T) {
	_, example, _ := strings.Cut(introduction, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/key", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	example = strings.Replace(example, "/etc/perdure/anthropic.key", dir+"/key", 1)
	path := dir + "/perdure.yaml"
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Sources{File: path, Home: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := loaded.Validate(); err != nil || len(loaded.Providers) != 2 {
		t.Errorf("%d providers, %v", len(loaded.Providers), err)
	}
}

func describe(b *strings.Builder, structs map[string]*ast.StructType, name, key, env string) {
	for _, field := range structs[name].Fields.List {
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		yaml, _, _ := strings.Cut(tag.Get("yaml"), ",")
		text := strings.Join(strings.Fields(field.Doc.Text()), " ")
		if _, rest, ok := strings.Cut(text, field.Names[0].Name+" "); ok {
			text = strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "are ")
		}
		variable := ""
		if e := tag.Get("env"); e != "" {
			variable = "`" + env + e + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key+yaml, variable, text)
		switch of := field.Type.(type) {
		case *ast.Ident:
			if structs[of.Name] != nil {
				describe(b, structs, of.Name, key+yaml+".", env+tag.Get("envPrefix"))
			}
		case *ast.ArrayType:
			if element, ok := of.Elt.(*ast.Ident); ok && structs[element.Name] != nil {
				describe(b, structs, element.Name, key+yaml+"[].", "")
			}
		}
	}
}
