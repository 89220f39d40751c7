package cut

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

const deep = 500 // levels of JSON

func FuzzCut(f *testing.F) {
	f.Add(`{"a":[1,2,3],"b":"xxxxxxxxxxxxxxxxxxxxxxxx","c":{"d":[{"e":1}]}}`, 20)
	f.Add(`[["aaaaaaaaaa"],["b"]]`, 8)
	f.Fuzz(func(t *testing.T, s string, budget int) {
		if len(s) > 10000 || budget < 0 || budget > 10000 {
			return
		}
		if closed := Salvage([]byte(s)); gjson.Valid(s) && len(s) > 0 && strings.ContainsAny(s[:1], "{[") && !gjson.ValidBytes(closed) {
			t.Errorf("Salvage(%q) = %q", s, closed)
		}
		if !gjson.Valid(s) || looksDeep(s) {
			return
		}
		doc, ok := jsonrpc.Read([]byte(s), deep)
		if !ok {
			t.Fatalf("%q is no JSON", s)
		}
		c := cutter{doc: doc}
		got := c.fit(nil, 0, len(doc.Text), "", budget)
		if !gjson.ValidBytes(got) {
			t.Errorf("fit(%q, %d) = %q, which is no JSON", s, budget, got)
		}
		if len(got) > max(len(s), 8) {
			t.Errorf("fit(%q, %d) = %q, which is longer", s, budget, got)
		}
	})
}

// Large answers are cut like small ones, without a walk through them.
func TestCutLarge(t *testing.T) {
	scaletest.Unraced(t)
	items := scaletest.Of(8000, 16000)
	list := largeList(items)
	var pairs strings.Builder
	for i := range items {
		fmt.Fprintf(&pairs, `,"k%d":[%d]`, i, i)
	}
	for _, all := range []string{
		list, `{"total":16000,"items":` + list + `,"next":"x"}`, "[" + list + "," + list + "]", "[[[" + list + "]]]",
		"{" + pairs.String()[1:] + "}", `{"of":{` + pairs.String()[1:] + `},"a":` + list + `}`,
	} {
		doc, ok := jsonrpc.Read([]byte(all), deep)
		if !ok {
			t.Fatalf("%.40s is no JSON", all)
		}
		for _, budget := range []int{0, 10, 100, 10_000, 100_000, len(all) - 1} {
			c, walks := cutter{doc: doc}, cutter{doc: &jsonrpc.Document{Text: doc.Text}}
			got, want := c.fit(nil, 0, len(all), "", budget), walks.fit(nil, 0, len(all), "", budget)
			if !bytes.Equal(got, want) || !slices.Equal(c.notes, walks.notes) {
				t.Errorf("%.40s in %d bytes: %.200s… %q, want %.200s… %q", all, budget, got, c.notes, want, walks.notes)
			}
			if !gjson.ValidBytes(got) || len(c.notes) == 0 {
				t.Errorf("%.40s in %d bytes: %.200s… %q", all, budget, got, c.notes)
			}
		}
	}
}

func looksDeep(s string) bool { return strings.Count(s, "[")+strings.Count(s, "{") > deep }

// A truncated text becomes valid JSON, wherever it was cut.
func TestSalvage(t *testing.T) {
	whole := `{"a":[1,{"b":"x\"]}"},[true,null]],"c":{"d":1.5e3,"e":""},"f":"é"}`
	for i := 1; i <= len(whole); i++ {
		if got := Salvage([]byte(whole[:i])); !gjson.ValidBytes(got) {
			t.Errorf("Salvage(%q) = %q", whole[:i], got)
		}
	}
}

// largeList is a list of small objects.
func largeList(items int) string {
	var b strings.Builder
	for i := range items {
		fmt.Fprintf(&b, `,{"id":%d,"name":"item number %d"}`, i, i)
	}
	return "[" + b.String()[1:] + "]"
}
