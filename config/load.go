package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile is more than any sensible file has. The parser's time grows with the
// square of some inputs.
const maxFile = 1 << 20

// Load reads the file at path and everything that it names: environment files,
// working directories, commands. Relative paths in it count from its own folder.
// env looks variables up; nil means the environment of this process. The error
// is a Faults, unless the file could not be read at all.
func Load(path string, env func(string) (string, bool)) (*Config, error) {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	data, err := readFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return parse(path, folder, data, env)
}

// Parse reads a configuration from data; name stands in messages. It opens no
// file: paths stay as they are, environment files unread.
func Parse(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	return parse(name, "", data, env)
}

func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("the file is larger than %v", Size(most))}
	}
	return data, nil
}

func parse(name, dir string, data []byte, env func(string) (string, bool)) (*Config, error) {
	if env == nil {
		env = os.LookupEnv
	}
	d := &decoder{file: name, dir: dir, env: env, anchors: map[string]ast.Node{}, secrets: map[string]string{}}
	var c *Config
	if root, ok := d.tree(data); ok {
		ast.Walk(collect(d.anchors), root)
		c = d.config(root)
	}
	if len(d.faults) > 0 {
		return nil, d.faults.sorted()
	}
	if len(d.secrets) > 0 {
		c.secrets = d.secrets
	}
	for _, w := range d.warnings.sorted() {
		c.Warnings = append(c.Warnings, w.String())
	}
	return c, nil
}

// tree returns the syntax tree of the file's one document; nil when it is empty.
func (d *decoder) tree(data []byte) (root ast.Node, ok bool) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		valid := len(data) - len(bytes.TrimLeftFunc(data, func(r rune) bool { return r != utf8.RuneError }))
		d.fault(1+bytes.Count(data[:valid], []byte("\n")), "the file is not UTF-8 text: save it as UTF-8")
		return nil, false
	}
	// The parser counts some lines twice when they end with \r\n.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if strings.EqualFold(filepath.Ext(d.file), ".json") && len(bytes.TrimSpace(data)) > 0 {
		var into json.RawMessage
		var syntax *json.SyntaxError
		if err := json.Unmarshal(data, &into); errors.As(err, &syntax) {
			d.broken(data, int(syntax.Offset), "not valid JSON: "+syntax.Error())
			return nil, false
		}
	}
	if json.Valid(data) {
		// JSON allows tabs where YAML does not. In valid JSON none is inside of a
		// string, so they can all go.
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	}
	d.data = data
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey()) // we report duplicates ourselves
	if err != nil {
		d.syntax(data, err)
		return nil, false
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.DirectiveType || doc.Body.Type() == ast.CommentType:
		case root != nil:
			d.fault(lineOf(doc.Body), "the file has a second document: only one is read, so remove the line with ---")
			return nil, false
		default:
			root = doc.Body
		}
	}
	return root, true
}

// syntax reports what the parser found.
func (d *decoder) syntax(data []byte, err error) {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil || e.GetToken().Position == nil {
		d.fault(0, "not valid YAML: %s", strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	pos := e.GetToken().Position
	lines := bytes.SplitAfter(data, []byte("\n"))
	offset := 0
	for _, line := range lines[:max(0, min(pos.Line-1, len(lines)))] {
		offset += len(line)
	}
	// Columns count characters.
	for i := 1; i < pos.Column && offset < len(data) && data[offset] != '\n'; i++ {
		_, n := utf8.DecodeRune(data[offset:])
		offset += n
	}
	message := "not valid YAML: " + strings.ReplaceAll(e.GetMessage(), "\t", `\t`)
	source := lines[max(0, min(pos.Line, len(lines))-1)]
	switch {
	case bytes.HasPrefix(bytes.TrimLeft(source, " "), []byte("\t")):
		message += "; indent with spaces, not with tabs"
	case bytes.Contains(source, []byte("${")) && bytes.ContainsAny(source, "[{"):
		message += "; put text with ${…} in quotes when it is within { } or [ ]"
	}
	d.broken(data, offset+1, message)
}

// broken reports a syntax error at the offset-th byte (from 1) with its line.
func (d *decoder) broken(data []byte, offset int, message string) {
	offset = max(0, min(offset-1, len(data)))
	begin := bytes.LastIndexByte(data[:offset], '\n') + 1
	line := data[begin:]
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	number := 1 + bytes.Count(data[:begin], []byte("\n"))
	// A long line, such as a whole file in one, is shown around the place.
	before := []rune(string(data[begin:offset]))
	column := len(before) + 1
	from := max(0, len(before)-60)
	shown := masked([]rune(string(line)))[from:]
	shown = shown[:min(len(shown), 100)]
	margin := fmt.Sprintf("%5d | ", number)
	text := strings.ReplaceAll(string(shown), "\t", " ") // so that the caret is in its place
	d.fault(number, "%s (column %d)\n%s%s\n%s^", message, column, margin, text, strings.Repeat(" ", len(margin)+len(before)-from))
}

// masked hides the values on a line that could not be read: one of them may be a
// secret. Keys stay, and punctuation, which is mostly what is wrong.
func masked(line []rune) []rune {
	word := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	out := slices.Clone(line)
	for i, r := range line {
		if word(r) {
			out[i] = '*'
		}
		if r != ':' {
			continue
		}
		for k := i - 1; k >= 0 && (word(line[k]) || strings.ContainsRune(`"'_-`, line[k])); k-- {
			out[k] = line[k]
		}
	}
	return out
}

// config reads the whole document.
func (d *decoder) config(root ast.Node) *Config {
	c := Default()
	const example = "for example\n" +
		"    servers:\n" +
		"      files:\n" +
		"        stdio: { command: npx, args: [\"-y\", \"@modelcontextprotocol/server-filesystem\", \".\"] }"
	top := &section{line: 1, marks: map[string]mark{}}
	var list []entry
	if _, empty := root.(*ast.NullNode); root != nil && !empty {
		var ok bool
		if list, ok = d.entries("", root); !ok {
			d.fault(lineOf(root), "the file is %s: expected keys and values, %s", d.shown(root), example)
			return &c
		}
	}
	list, desktop := d.desktop(list)
	d.fields(top, list, reflect.ValueOf(&c).Elem())
	if desktop != nil {
		d.desktopServers(*desktop, &c)
	}
	for _, b := range c.breaches() {
		d.breach(top, b)
	}
	d.halfSaid(top, &c)
	d.prefixes(&c)
	if _, set := top.marks["servers"]; !set && desktop == nil {
		d.fault(top.line, "there are no servers: name at least one, %s", example)
	} else if set && !top.marks["servers"].bad && len(c.Servers) == 0 {
		d.fault(top.marks["servers"].line, "servers is empty: name at least one, %s", example)
	}
	if c.Open() && !top.marks["listen"].bad {
		d.warn(top.marks["listen"].line, "listens beyond loopback without access rules: anyone who reaches it could use every server, so it is not served without --insecure: add access:, or listen on 127.0.0.1")
	}
	return &c
}

// prefixes fills in the prefixes that depend on the separator.
func (d *decoder) prefixes(c *Config) {
	for i, sec := range d.sections {
		if _, set := sec.marks["prefix"]; !set {
			c.Servers[i].Prefix = c.Servers[i].Name + c.Separator
		}
	}
	for i, sec := range d.sections {
		if b, broken := c.samePrefix(i); broken {
			d.breach(sec, b)
		}
	}
}

func (d *decoder) breach(sec *section, b breach) {
	m, set := sec.at(b.key)
	other, otherSet := sec.marks[b.other]
	switch {
	case m.bad || other.bad: // its default was taken, which may be what does not fit
		return
	case !set && otherSet:
		m = other
	}
	d.fault(m.line, "%s%s %s", sec.where, b.key, b.rule)
}

// servers reads the mapping of names to servers.
func (d *decoder) servers(x *slot, n ast.Node, into *[]Server) bool {
	if _, empty := d.resolve(n).(*ast.NullNode); empty {
		return true // as an empty mapping, for which there is a better message
	}
	list, ok := d.entries("servers: ", n)
	if !ok {
		return d.mistyped(x, n, "a mapping of names to servers")
	}
	for _, e := range list {
		if err := checkName(e.key); err != nil {
			d.fault(e.line, "server %q: %v", clip(e.key), err)
		}
		sec := &section{where: fmt.Sprintf("server %q: ", clip(e.key)), line: e.line}
		keys, ok := d.entries(sec.where, e.value)
		if !ok {
			at := &slot{sec: &section{}, label: strings.TrimSuffix(sec.where, ": "), line: e.line}
			d.mistyped(at, e.value, "a mapping such as { stdio: { command: npx } }")
			continue
		}
		*into = append(*into, d.server(sec, e.key, keys))
		d.sections = append(d.sections, sec)
	}
	return len(*into) > 0 || len(list) == 0
}

func (d *decoder) server(sec *section, name string, keys []entry) Server {
	s := DefaultServer(name, "")
	d.fields(sec, keys, reflect.ValueOf(&s).Elem())
	if _, set := sec.marks["idle_stop"]; !set {
		s.IdleStop = DefaultServer(name, s.Share).IdleStop
	}
	set := s.kinds()
	if len(set) > 1 {
		d.fault(sec.line, "%sis of more than one kind (%s): keep one", sec.where, strings.Join(set, ", "))
		return s // further rules depend on the kind
	}
	tried := slices.ContainsFunc(kindKeys(), func(name string) bool { _, ok := sec.marks[name]; return ok })
	switch {
	case len(set) == 1:
		d.finish(sec, &s)
	case !tried && !sec.marks[""].bad:
		d.fault(sec.line, "%snothing says how to reach it: add stdio: { command: …, args: […] } or http: { url: … }", sec.where)
	}
	return s
}

// finish does what takes all settings of a server.
func (d *decoder) finish(sec *section, s *Server) {
	s.nameForwards()
	for _, b := range s.breaches() {
		d.breach(sec, b)
	}
	for _, r := range s.remarks() {
		m, _ := sec.at(r.key)
		d.warn(m.line, "%s%s %s", sec.where, r.key, r.rule)
	}
}
