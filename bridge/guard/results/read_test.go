package results

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
)

// A server may leave out or mistype the content of an item. The resource of the whole is valid JSON without that item.
func TestResourceOfBrokenItems(t *testing.T) {
	s, from := NewStore(0, "bridge://results/"), &bridge.Caller{}
	for _, item := range []string{`{"type":"text"}`, `{"type":"text","text":5}`, `{"type":"image","data":null}`, `{"type":"resource","resource":{"blob":[]}}`} {
		id := s.keep(from, []byte(`{"content":[`+item+`,{"type":"text","text":"a"}]}`), 1024)
		if got, _ := s.Resource(from, s.prefix+id); string(got) != `"contents":[{"uri":"`+s.prefix+id+`","mimeType":"text/plain","text":"a"}]` {
			t.Errorf("%s: %s", item, got)
		}
	}
}

// One call of grep does a bounded work, and says where to go on. A pattern that is too large is refused.
func TestGrepIsBounded(t *testing.T) {
	s, from := NewStore(0, "bridge://results/"), &bridge.Caller{}
	id := s.keep(from, []byte(`{"content":[{"type":"text","text":"`+strings.Repeat(strings.Repeat("a", 1<<16)+`\n`, 64)+`b"}]}`), 1<<17)
	read := func(more string) (string, bool) { return s.Read(from, []byte(`{"id":"`+id+`",`+more+`}`)) }
	if text, failed := read(`"grep":"(a?){400}b"`); failed || !strings.Contains(text, "go on with from 2") {
		t.Errorf("much work: %q, %t", text, failed)
	}
	if text, failed := read(`"grep":"(abcdefgh){1000}"`); !failed || !strings.Contains(text, "too large") {
		t.Errorf("a large pattern: %q, %t", text, failed)
	}
	if text, failed := read(`"grep":"^b"`); failed || text != "65: b" {
		t.Errorf("little work: %q, %t", text, failed)
	}
}

// A line as long as a piece stays whole, and arrays are indented as objects are.
func TestLines(t *testing.T) {
	if got := strings.Join(pieces("abc\nabcd", 3), "|"); got != "abc|abc|d" {
		t.Errorf("pieces: %s", got)
	}
	for text, want := range map[string]string{`[1]`: "[\n 1\n]", `{"a":1}`: "{\n \"a\": 1\n}", `1`: `1`} {
		if got := indented(text); got != want {
			t.Errorf("indented(%s) = %s", text, got)
		}
	}
}
