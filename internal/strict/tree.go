package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/jsonc"
	"go.yaml.in/yaml/v4"
)

// Tree returns the file's one document, or nil if the file is empty. After a fault, ok is false.
func (d *Decoder) Tree(data []byte) (root *yaml.Node, ok bool) {
	if len(data) > MaxFile {
		d.Fault(0, "%v", errLarge)
		return nil, false
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		valid := len(data) - len(bytes.TrimLeftFunc(data, func(r rune) bool { return r != utf8.RuneError }))
		d.Fault(1+bytes.Count(data[:valid], []byte("\n")), "the file is not UTF-8 text: save it as UTF-8")
		return nil, false
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if ext := strings.ToLower(filepath.Ext(d.File)); (ext == ".json" || ext == ".jsonc") && len(bytes.TrimSpace(data)) > 0 {
		data = jsonc.ToJSON(data) // comments and trailing commas become spaces, so lines and columns stay
		var into json.RawMessage
		var syntax *json.SyntaxError
		if err := json.Unmarshal(data, &into); errors.As(err, &syntax) && strings.Contains(syntax.Error(), "max depth") {
			d.Fault(1+bytes.Count(data[:syntax.Offset], []byte("\n")), "%v", errDeep)
			return nil, false
		} else if syntax != nil {
			d.broken(data, int(syntax.Offset), "not valid JSON: "+syntax.Error()+jsonHint(syntax))
			return nil, false
		}
	}
	root, err := Parse(data)
	if err != nil {
		d.syntax(data, err)
	}
	return root, err == nil
}

// syntax adds a fault for an error of Parse.
func (d *Decoder) syntax(data []byte, err error) {
	var b *broken
	if !errors.As(err, &b) {
		d.Fault(0, "not valid YAML: %v", err)
		return
	}
	if b.column == 0 {
		d.Fault(b.line, "%s", b.message)
		return
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	offset := 0
	for _, line := range lines[:max(0, min(b.line-1, len(lines)))] {
		offset += len(line)
	}
	// Columns count characters.
	for i := 1; i < b.column && offset < len(data) && data[offset] != '\n'; i++ {
		_, n := utf8.DecodeRune(data[offset:])
		offset += n
	}
	message, source := b.message, lines[max(0, min(b.line, len(lines))-1)]
	switch {
	case bytes.HasPrefix(bytes.TrimLeft(source, " "), []byte("\t")):
		message = "not valid YAML: a tab stands before the text; indent with spaces, not with tabs"
	case offset < len(data) && strings.IndexByte("@`%", data[offset]) >= 0:
		message = fmt.Sprintf("not valid YAML: no text begins with %c; put the text in quotes", data[offset])
	case tomlHead.Match(bytes.TrimSpace(data)):
		message += "; this looks like TOML: write YAML or JSON"
	case bytes.Contains(source, []byte("${")) && bytes.ContainsAny(source, "[{"):
		message += "; put text with ${…} in quotes when it is within { } or [ ]"
	}
	d.broken(data, offset+1, message)
}

// tomlHead matches the first line of a TOML file that begins with a table.
var tomlHead = regexp.MustCompile(`^\[\[?[\w."-]+\]\]?\s*(#.*)?\n`)

// jsonHint returns the probable cause of a JSON syntax error.
func jsonHint(err *json.SyntaxError) string {
	switch text := err.Error(); {
	case strings.Contains(text, "unexpected end"):
		return ": a closing } or ] or \" is missing"
	case strings.Contains(text, "after object key:value pair"), strings.Contains(text, "after array element"):
		return ": a comma is missing before it"
	case strings.Contains(text, "beginning of object key"):
		return ": keys are written in double quotes"
	}
	return ""
}

// broken adds a fault for a syntax error at a byte offset (counted from 1), and shows the line of the error.
func (d *Decoder) broken(data []byte, offset int, message string) {
	offset = max(0, min(offset-1, len(data)))
	begin := bytes.LastIndexByte(data[:offset], '\n') + 1
	line := data[begin:]
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	number := 1 + bytes.Count(data[:begin], []byte("\n"))
	// Of a long line, such as a whole file in one line, only the part around the error is shown.
	before := []rune(string(data[begin:offset]))
	column := len(before) + 1
	from := max(0, len(before)-60)
	margin := fmt.Sprintf("%5d | ", number)
	excerpt := func(shown []rune) string {
		if shown = shown[from:]; from > 0 {
			shown[0] = '…'
		}
		if len(shown) > 100 {
			shown = append(shown[:99:99], '…')
		}
		text := strings.ReplaceAll(string(shown), "\t", " ") // keeps the caret below the error
		return fmt.Sprintf("%s (column %d)\n%s%s\n%s^", message, column, margin, text, strings.Repeat(" ", len(margin)+len(before)-from))
	}
	d.Fault(number, "%s", excerpt(masked([]rune(string(line)))))
	d.Faults[len(d.Faults)-1].open = excerpt(opened([]rune(string(line)), string(data[:begin])))
}
