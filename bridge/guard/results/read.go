package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/cut"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// gone is the answer for a result that is not here: an instance has its own, and keeps them for a while.
const gone = "The bridge does not have this result, or no longer. Call the tool again."

// These constants bound a search with a regular expression, whose time is about the product of its instructions and the
// bytes that it reads.
const (
	maxPattern      = 1000    // bytes of the expression
	maxInstructions = 2000    // of the compiled expression
	maxWork         = 1 << 26 // instructions times bytes in one call
)

// Read answers a call of the tool that reads kept results. args is a JSON object.
func (s *Store) Read(from *bridge.Caller, args []byte) (text string, failed bool) {
	a := gjson.ParseBytes(args)
	k := s.find(from, a.Get("id").String())
	if k == nil {
		return gone, true
	}
	lines := k.text()
	if path := a.Get("path"); path.Exists() && path.String() != "" {
		value, ok := k.at(path.String())
		if !ok {
			return fmt.Sprintf("The result has nothing at path %.100q. A path is a JSON pointer, such as /items/0/name.", path.String()), true
		}
		if lines = indented(value); !a.Get("grep").Exists() && len(lines) > k.limit && !a.Get("from").Exists() {
			doc, ok := jsonrpc.Read([]byte(value), maxDepth)
			if ok {
				out, notes := cut.JSON(doc, k.limit)
				return string(out) + "\n(" + strings.Join(notes, "; ") + ")", false
			}
		}
	}
	all := pieces(lines, k.limit-maxNote)
	begin := max(int(a.Get("from").Int()), 1)
	if pattern := a.Get("grep").String(); pattern != "" {
		return grep(all, pattern, begin, k.limit)
	}
	if begin > len(all) {
		return fmt.Sprintf("The result has %d lines.", len(all)), true
	}
	most := len(all) - begin + 1
	if n := a.Get("lines"); n.Type == gjson.Number {
		most = min(most, max(int(n.Int()), 1))
	}
	var b strings.Builder
	shown := 0
	for _, line := range all[begin-1 : begin-1+most] {
		if b.Len()+len(line) >= k.limit {
			break
		}
		b.WriteString(line + "\n")
		shown++
	}
	last := begin + shown - 1
	if begin == 1 && last == len(all) {
		return strings.TrimSuffix(b.String(), "\n"), false
	}
	return b.String() + fmt.Sprintf("(lines %d to %d of %d)", begin, last, len(all)), false
}

// maxNote is the room for the line that says which lines are shown, in bytes.
const maxNote = 100

// pieces returns the lines of a text. A line that is longer than most bytes counts as several, so that a reader gets
// behind it.
func pieces(text string, most int) (all []string) {
	most = max(most, 1)
	for line := range strings.SplitSeq(text, "\n") {
		for len(line) > most {
			at := max(cut.Before([]byte(line), most), 1)
			all, line = append(all, line[:at]), line[at:]
		}
		all = append(all, line)
	}
	return all
}

// grep returns the lines that match a regular expression, with their numbers.
func grep(all []string, pattern string, begin, limit int) (text string, failed bool) {
	if len(pattern) > maxPattern {
		return fmt.Sprintf("grep must have at most %d bytes.", maxPattern), true
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "grep is no regular expression (RE2): " + err.Error(), true
	}
	n := instructions(pattern)
	if n > maxInstructions {
		return "grep is too large: use fewer or smaller repetitions.", true
	}
	var b strings.Builder
	found, left := 0, maxWork/n
	for i := begin - 1; i < len(all); i++ {
		part := all[i][:min(len(all[i]), maxWork/n)]
		if left -= len(part) + 1; left < 0 && i >= begin {
			return b.String() + fmt.Sprintf("(searched up to line %d: go on with from %d)", i, i+1), false
		}
		if !re.MatchString(part) {
			continue
		}
		found++
		line := strconv.Itoa(i+1) + ": " + cut.Head([]byte(all[i]), 1000) + "\n"
		if b.Len()+len(line) > limit {
			return b.String() + fmt.Sprintf("(more match: go on with from %d)", i+1), false
		}
		b.WriteString(line)
	}
	if found == 0 {
		return "No line matches.", false
	}
	return strings.TrimSuffix(b.String(), "\n"), false
}

// instructions returns the size of a regular expression that compiles.
func instructions(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return math.MaxInt
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return math.MaxInt
	}
	return len(program.Inst)
}

// text returns all texts of the result. JSON is indented, so that it has lines.
func (k *kept) text() string {
	var all []string
	gjson.GetBytes(k.result, "content").ForEach(func(_, item gjson.Result) bool {
		for _, text := range []gjson.Result{item.Get("text"), item.Get("resource.text")} {
			if text.Type == gjson.String {
				all = append(all, indented(text.Str))
			}
		}
		return true
	})
	if len(all) == 0 {
		if c := gjson.GetBytes(k.result, "structuredContent"); c.Exists() {
			return indented(c.Raw)
		}
	}
	return strings.Join(all, "\n")
}

// indented returns JSON with a member or item a line, and another text as it is.
func indented(text string) string {
	if t := strings.TrimSpace(text); t == "" || t[0] != '{' && t[0] != '[' || !jsonrpc.Valid([]byte(text), maxDepth) {
		return text
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", " ") != nil {
		return text
	}
	return b.String()
}

// at returns the value at a JSON pointer (RFC 6901) in the structured content, or in the first text that is JSON.
func (k *kept) at(pointer string) (string, bool) {
	roots := []string{gjson.GetBytes(k.result, "structuredContent").Raw}
	for _, text := range gjson.GetBytes(k.result, "content.#.text").Array() {
		roots = append(roots, text.String())
	}
	for _, root := range roots {
		if root == "" || !jsonrpc.Valid([]byte(root), maxDepth) {
			continue
		}
		if value, ok := resolve([]byte(root), pointer); ok {
			return string(value), true
		}
	}
	return "", false
}

// resolve follows a JSON pointer. A pointer may lack its first slash.
func resolve(value []byte, pointer string) ([]byte, bool) {
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		var next []byte
		switch {
		case rawjson.IsObject(value):
			next = rawjson.Get(value, step)
		case rawjson.IsArray(value):
			at, err := strconv.Atoi(step)
			if err != nil {
				return nil, false
			}
			rawjson.Walk(value, '[', func(_, begin, end int) bool {
				if at == 0 {
					next = value[begin:end]
				}
				at--
				return at >= 0
			})
		}
		if next == nil {
			return nil, false
		}
		value = next
	}
	return value, true
}

// Resource returns the result of resources/read for the URI of a kept result; false if there is none.
func (s *Store) Resource(from *bridge.Caller, uri string) (members []byte, ok bool) {
	id, _ := strings.CutPrefix(uri, s.prefix)
	k := s.find(from, id)
	if k == nil {
		return nil, false
	}
	out := []byte(`"contents":[`)
	add := func(kind, mime, member, raw string) {
		if !strings.HasPrefix(raw, `"`) { // the server may leave out or mistype the content
			return
		}
		if out[len(out)-1] != '[' {
			out = append(out, ',')
		}
		if mime == "" {
			mime = kind
		}
		out = append(out, `{"uri":`+rawjson.Quote(uri)+`,"mimeType":`+rawjson.Quote(mime)+`,"`+member+`":`+raw+`}`...)
	}
	gjson.GetBytes(k.result, "content").ForEach(func(_, item gjson.Result) bool {
		switch item.Get("type").Str {
		case "text":
			add("text/plain", "", "text", item.Get("text").Raw)
		case "image", "audio":
			add("application/octet-stream", item.Get("mimeType").Str, "blob", item.Get("data").Raw)
		case "resource":
			if text := item.Get("resource.text"); text.Exists() {
				add("text/plain", item.Get("resource.mimeType").Str, "text", text.Raw)
			} else if blob := item.Get("resource.blob"); blob.Exists() {
				add("application/octet-stream", item.Get("resource.mimeType").Str, "blob", blob.Raw)
			}
		}
		return true
	})
	if c := gjson.GetBytes(k.result, "structuredContent"); c.Exists() {
		add("application/json", "", "text", rawjson.Quote(c.Raw))
	}
	return append(out, ']'), true
}
