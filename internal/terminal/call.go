package terminal

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/client"
)

// The lines of a result that are shown: its beginning and its end, which is where results say how they went.
const (
	resultHead = 4
	resultTail = 2
)

// argument is the input that says most about a call of a tool.
var argument = map[string]string{
	"bash": "command", "read": "file_path", "write": "file_path", "edit": "file_path",
	"glob": "pattern", "grep": "pattern", "web_fetch": "url", "web_search": "query",
}

// summary is one clean line that says what a call is about.
func summary(e client.Event) string {
	var input map[string]jsontext.Value
	if json.Unmarshal(e.Input, &input) != nil {
		return CleanLine(string(e.Input))
	}
	var text string
	if name := argument[e.Name]; name != "" && json.Unmarshal(input[name], &text) == nil {
		lines := strings.Split(strings.TrimSpace(Clean(text)), "\n")
		if len(lines) > 1 {
			return fmt.Sprintf("%s … %s", CleanLine(lines[0]), more(len(lines)-1))
		}
		return CleanLine(lines[0])
	}
	if e.Name == "bash" && string(input["restart"]) == "true" {
		return "restart the shell"
	}
	compact := e.Input.Clone()
	if compact.Compact() != nil || string(compact) == "{}" {
		return ""
	}
	return CleanLine(string(compact))
}

func more(lines int) string {
	if lines == 1 {
		return "+1 line"
	}
	return fmt.Sprintf("+%d lines", lines)
}

// toolName is the name of a call's tool as it is shown.
func toolName(e client.Event) string {
	if e.MCPServer != "" {
		return CleanLine(e.MCPServer + "/" + e.Name)
	}
	return CleanLine(e.Name)
}

// resultLines folds a result to a few lines.
func resultLines(e client.Event, width int) []string {
	var text strings.Builder
	for i, block := range e.Content {
		if i > 0 {
			text.WriteByte('\n')
		}
		if block.Type == "text" {
			text.WriteString(block.Text)
		} else {
			text.WriteString("[" + block.Type + "]")
		}
	}
	clean := strings.TrimRight(Clean(text.String()), "\n \t")
	if clean == "" {
		return []string{"(no output)"}
	}
	lines := strings.Split(clean, "\n")
	if hidden := len(lines) - resultHead - resultTail; hidden > 1 {
		lines = slices.Concat(lines[:resultHead], []string{"… " + more(hidden)}, lines[len(lines)-resultTail:])
	}
	for i, line := range lines {
		lines[i] = shorten(strings.ReplaceAll(line, "\t", "    "), width)
	}
	return lines
}

// inputLines shows a call's whole input, one argument after the other: what a person decides about must be seen, not
// summed up.
func inputLines(e client.Event) []string {
	var lines []string
	decoder := jsontext.NewDecoder(bytes.NewReader(e.Input))
	if decoder.PeekKind() != '{' {
		return strings.Split(Clean(string(e.Input)), "\n")
	}
	if _, err := decoder.ReadToken(); err != nil {
		return []string{"(the input cannot be read)"}
	}
	for decoder.PeekKind() == '"' {
		name, err := decoder.ReadToken()
		if err != nil {
			return append(lines, "(the rest of the input cannot be read)")
		}
		label := CleanLine(name.String())
		value, err := decoder.ReadValue()
		if err != nil {
			return append(lines, "(the rest of the input cannot be read)")
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		parts := strings.Split(strings.TrimSuffix(Clean(text), "\n"), "\n")
		if len(parts) == 1 {
			lines = append(lines, label+": "+parts[0])
			continue
		}
		lines = append(lines, label+":")
		for _, part := range parts {
			lines = append(lines, "  "+part)
		}
	}
	return lines
}
