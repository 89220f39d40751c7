package rest

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/internal/openapitest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// asked is a question of testdata/questions.txt.
type asked struct {
	document, text string
	answers        []string
}

func (a *asked) answered(t *toolset.Tool) bool {
	return slices.Contains(a.answers, t.Operation.ID) || slices.Contains(a.answers, t.Operation.Key())
}

// questions returns the questions about documents of one origin.
func questions(t *testing.T, origin string) []asked {
	text, err := os.ReadFile("testdata/questions.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []asked
	document, ok := "", false
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "# "); found {
			document, ok = strings.CutPrefix(name, origin)
		} else if q, want, found := strings.Cut(strings.TrimSpace(line), " = "); found && ok {
			out = append(out, asked{document, q, strings.Split(want, ", ")})
		}
	}
	return out
}

// score counts the questions whose answer is found first, among the first five, and among the first
// twenty.
// five, and among the first twenty that are found.
type score [3]int

func (s *score) add(a *asked, found []*toolset.Tool) {
	at := slices.IndexFunc(found, a.answered)
	for i, most := range []int{1, 5, 20} {
		if at >= 0 && at < most {
			s[i]++
		}
	}
}

// TestQuestions: everyday questions find their operation, and clearly better than plain BM25 over
// the same texts.
func TestQuestions(t *testing.T) {
	scaletest.Unraced(t)
	for _, test := range []struct {
		origin string
		path   func(t testing.TB, name string) string
		count  int
		least  score
	}{
		{"shared/", openapitest.Shared, 88, score{65, 80, 83}},
		// 100 of these were known when the search was written; the last 41 were added later.
		{"npm/", openapitest.Directory, 141, score{103, 127, 133}},
	} {
		t.Run(strings.Trim(test.origin, "/"), func(t *testing.T) {
			if testing.Short() {
				t.Skip("reads large documents")
			}
			all := questions(t, test.origin)
			if len(all) != test.count {
				t.Errorf("%d questions, want %d", len(all), test.count)
			}
			var got, plain score
			var f *finder
			var reference func(query string) []*toolset.Tool
			document := ""
			for _, a := range all {
				if a.document != document {
					document = a.document
					c := Config{OpenAPI: test.path(t, document)}
					m, err := c.read(t.Context(), "api", &Options{}, nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					f, reference = newFinder(m.tools), plainBM25(m.tools)
				}
				if !slices.ContainsFunc(f.tools, a.answered) {
					t.Fatalf("%s has none of %q", document, a.answers)
				}
				found := f.find(a.text, "", "")
				if !slices.ContainsFunc(found[:min(len(found), 20)], a.answered) {
					t.Logf("%s: %s: %q is not among twenty", document, a.text, a.answers)
				}
				got.add(&a, found)
				plain.add(&a, reference(a.text))
			}
			t.Logf("of %d questions the answer is first, among five, among twenty: %v; by plain BM25: %v", len(all), got, plain)
			for i, least := range test.least {
				if got[i] < least {
					t.Errorf("%v of %d, want at least %v", got, len(all), test.least)
					break
				}
			}
			if got[0] < plain[0]+len(all)/8 || got[1] < plain[1]+len(all)/12 || got[2] < plain[2]+2 {
				t.Errorf("%v is not clearly better than %v", got, plain)
			}
		})
	}
}

// plainBM25 finds tools by BM25 over one text per tool.
func plainBM25(tools []*toolset.Tool) func(query string) []*toolset.Tool {
	stop := []string{"a", "an", "the", "to", "in", "of"}
	texts := make([]map[string]float64, len(tools))
	lengths, total := make([]float64, len(tools)), 0.0
	have := map[string]float64{}
	for i, t := range tools {
		texts[i] = map[string]float64{}
		ws := words(strings.Join([]string{t.Name, t.Title, toolset.PathOf(t.Operation), strings.Join(t.Operation.Tags, " "), t.Description[:min(len(t.Description), 300)]}, " "))
		for _, w := range ws {
			if !slices.Contains(stop, w) {
				texts[i][w]++
			}
		}
		for w := range texts[i] {
			have[w]++
		}
		lengths[i] = float64(len(ws))
		total += lengths[i]
	}
	n := float64(len(tools))
	return func(query string) []*toolset.Tool {
		scores := map[*toolset.Tool]float64{}
		var out []*toolset.Tool
		for i, t := range tools {
			for _, w := range words(query) {
				if times := texts[i][w]; times > 0 {
					rarity := math.Log(1 + (n-have[w]+0.5)/(have[w]+0.5))
					scores[t] += rarity * times * 2.2 / (times + 1.2*(0.25+0.75*lengths[i]*n/total))
				}
			}
			if scores[t] > 0 {
				out = append(out, t)
			}
		}
		slices.SortStableFunc(out, func(t, b *toolset.Tool) int { return cmp.Compare(scores[b], scores[t]) })
		return out
	}
}

// Names of arguments and their values are found, as are other words for the same. A question for
// something to read does not find what writes first.
func TestQuestionForms(t *testing.T) {
	c := Config{BaseURL: "http://localhost", OpenAPI: file(t, `openapi: 3.0.0
paths:
  /instances: { post: { operationId: startInstance } }
  /users/current: { patch: { operationId: userPatch, summary: The current user }, get: { operationId: userGet, summary: The current user } }
  /jobs: { get: { operationId: listJobs, parameters: [{ name: queue, in: query, schema: { type: string, enum: [urgent, later] } }] } }
  /hooks: { post: { operationId: addHook, requestBody: { content: { application/json: { schema: { type: object, properties: { callback: { type: string } } } } } } } }
`)}
	m, err := c.read(t.Context(), "api", &Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := newFinder(m.tools)
	for question, want := range map[string]string{
		"launch a machine": "startInstance", "urgent things": "listJobs", "the queue": "listJobs", "a callback": "addHook", "who is the current user": "userGet",
	} {
		if found := f.find(question, "", ""); len(found) == 0 || found[0].Name != want {
			t.Errorf("%s: %v, want %s", question, len(found), want)
		}
	}
}

func TestWords(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"listCoreV1NamespacedPod", "list core v1 namespaced pod"},
		{"repos/list-for_org", "repos list for org"},
		{"getIPAddress", "get ip address"},
		{"listURLs of IDs", "list urls of ids"},
		{"SMS", "sms"},
		{"", ""},
		{"Größe ändern", "größe ändern"},
	} {
		if got := strings.Join(words(test.text), " "); got != test.want {
			t.Errorf("words(%q) = %q, want %q", test.text, got, test.want)
		}
	}
}

func TestStem(t *testing.T) {
	for _, group := range []string{
		"pet pets", "repository repositories", "create creates creating created creation", "delete deleting deletion",
		"add adds adding added", "get getting", "address addresses", "box boxes", "message messages", "status",
		"cancel cancelled canceling", "is", "news", "class classes", "page paging paged",
	} {
		all := strings.Fields(group)
		for _, w := range all {
			if stem(w) != stem(all[0]) {
				t.Errorf("stem(%q) = %q, stem(%q) = %q", w, stem(w), all[0], stem(all[0]))
			}
		}
	}
	for _, pair := range []string{"use user", "stat station"} {
		a, b, _ := strings.Cut(pair, " ")
		if stem(a) == stem(b) {
			t.Errorf("stem(%q) = stem(%q) = %q", a, b, stem(a))
		}
	}
}

// A caller who may use only some tools finds only these.
func TestFindGranted(t *testing.T) {
	c := Config{OpenAPI: file(t, many(30)), Mode: ModeSearch}
	m, err := c.read(t.Context(), "many", &Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := c.catalog(m, "many")
	some := all.finderFor(func(name string) bool { return name == "getThing3" || name == "getThing4" })
	for _, test := range []struct{ name, got, want string }{
		{"search", string(some.search([]byte(`{"query":"thing"}`))), "getThing3"},
		{"everything", string(some.search([]byte(`{}`))), "getThing4"},
		{"describe", string(some.describe([]byte(`{"ids":["getThing7"]}`), 1<<16)), `There is no operation`},
		{"tags", string(some.search([]byte(`{"query":"nothing"}`))), "t0, t1."},
	} {
		if !strings.Contains(test.got, test.want) || strings.Contains(test.got, "/things7") || strings.Contains(test.got, "t2") {
			t.Errorf("%s: %s", test.name, test.got)
		}
	}
	if got := len(all.finder.find("thing", "", "")); got != 30 {
		t.Errorf("everybody finds %d, want 30", got)
	}
}
