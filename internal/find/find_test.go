package find

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// indexOf returns an index of tools, each given as its name, a colon and its description.
func indexOf(tools ...string) (x *Index, names []string) {
	var all []Tool
	for _, t := range tools {
		name, about, _ := strings.Cut(t, ": ")
		names = append(names, name)
		all = append(all, Read(fmt.Appendf(nil, `{"name":%q,"description":%q}`, name, about), ""))
	}
	return New(all), names
}

func TestFind(t *testing.T) {
	x, names := indexOf(
		"send_mail: Sends a mail to a person.",
		"reboot_machine: Reboots a machine at once.",
		"list_folder: Lists what is in a folder.",
		"shutdown_host: Turns a host off.",
		"export_report: Exports a report of sales as a table, by month and by region.",
		"month_report: Exports a month.",
	)
	for _, test := range []struct{ why, query, first string }{
		{"its own word", "mail", "send_mail"},
		{"a synonym", "send an email", "send_mail"},
		{"a synonym of both words", "restart the server", "reboot_machine"},
		{"a synonym of another form", "what is in the directories", "list_folder"},
		{"two words for a synonym", "shut down the machine", "shutdown_host"},
		{"the tool with more of the question's words", "table of sales by month", "export_report"},
		{"the exact name", "month_report", "month_report"},
	} {
		found := x.Find(test.query)
		if len(found) == 0 || names[found[0]] != test.first {
			var got []string
			for _, i := range found {
				got = append(got, names[i])
			}
			t.Errorf("%s: %q finds %v, want %s first", test.why, test.query, got, test.first)
		}
	}
	if found := x.Find("weather"); len(found) != 0 {
		t.Errorf("a word that no tool has finds %v", found)
	}
}

// A synonym counts less than the word itself.
func TestSynonymsCountLess(t *testing.T) {
	x, names := indexOf("list_folder: Lists a folder.", "list_directory: Lists a directory.", "list_things: Lists things.")
	for query, first := range map[string]string{"folder": "list_folder", "directory": "list_directory"} {
		found := x.Find(query)
		if len(found) != 2 || names[found[0]] != first {
			t.Errorf("%q finds %v, want %s first, and the other", query, found, first)
		}
	}
}

// BenchmarkManyTools measures an index of 10,000 tools of usual size, with 2,000 different words, and a search in it.
func BenchmarkManyTools(b *testing.B) {
	word := func(i int) string { return fmt.Sprintf("%c%c%c", 'b'+i%20, "aeiou"[i/20%5], 'b'+i/100%20) }
	var tools []Tool
	for i := range 10_000 {
		var about strings.Builder
		for j := range 30 {
			about.WriteString(word(i*7+j*j*13) + " ")
		}
		tools = append(tools, Read(fmt.Appendf(nil, `{"name":"get_%s_%s_%d","description":%q,"inputSchema":{"type":"object","properties":{%q:{},%q:{}}}}`,
			word(i), word(i*3), i, about.String(), word(i*5), word(i*11)), "server"))
	}
	b.Run("index", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		x := New(tools)
		runtime.GC()
		runtime.ReadMemStats(&after)
		for b.Loop() {
			New(tools)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB")
		runtime.KeepAlive(x)
	})
	x := New(tools)
	for _, query := range []string{"bab", "get the bab of a cec with a did", strings.Repeat("bab cec did fof ", 20)} {
		b.Run(fmt.Sprintf("search of %d words", len(strings.Fields(query))), func(b *testing.B) {
			for b.Loop() {
				x.Find(query)
			}
		})
	}
}
