package rest

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/internal/find"
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

// score counts the questions whose answer is found first, among the first five, and among the first of
// a larger number.
type score [3]int

// add counts an answer that is found at an index, or not if that is negative.
func (s *score) add(at, last int) {
	for i, most := range []int{1, 5, last} {
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
			if testing.Short() && test.origin == "npm/" {
				t.Skip("reads the largest documents")
			}
			all := questions(t, test.origin)
			if len(all) != test.count {
				t.Errorf("%d questions, want %d", len(all), test.count)
			}
			var got, plain score
			var tools []*toolset.Tool
			var x *find.Index
			var reference func(query string) []*toolset.Tool
			document := ""
			for _, a := range all {
				if a.document != document {
					document = a.document
					c := Config{OpenAPI: test.path(t, document)}
					all := madeOf(t, c, Options{}).Tools
					tools, x, reference = all, indexOf(all), plainBM25(all)
				}
				if !slices.ContainsFunc(tools, a.answered) {
					t.Fatalf("%s has none of %q", document, a.answers)
				}
				var found []*toolset.Tool
				for _, i := range x.Find(a.text) {
					found = append(found, tools[i])
				}
				if !slices.ContainsFunc(found[:min(len(found), 20)], a.answered) {
					t.Logf("%s: %s: %q is not among twenty", document, a.text, a.answers)
				}
				got.add(slices.IndexFunc(found, a.answered), 20)
				plain.add(slices.IndexFunc(reference(a.text), a.answered), 20)
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

// indexOf returns the index of tools as clients of the gateway have it.
func indexOf(list []*toolset.Tool) *find.Index {
	var all []find.Tool
	for _, t := range list {
		all = append(all, find.Read(tools.AppendEntry(nil, t), ""))
	}
	return find.New(all)
}

// splitWords returns the words of a text, in lower case.
func splitWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// plainBM25 finds tools by BM25 over one text per tool.
func plainBM25(tools []*toolset.Tool) func(query string) []*toolset.Tool {
	texts := make([]string, len(tools))
	for i, t := range tools {
		texts[i] = strings.Join([]string{t.Name, t.Title, toolset.PathOf(t.Operation), strings.Join(t.Operation.Tags, " "), t.Description[:min(len(t.Description), 300)]}, " ")
	}
	rank := plainTexts(texts)
	return func(query string) (out []*toolset.Tool) {
		for _, i := range rank(query) {
			out = append(out, tools[i])
		}
		return out
	}
}

// plainTexts finds texts by BM25.
func plainTexts(all []string) func(query string) []int {
	stop := []string{"a", "an", "the", "to", "in", "of"}
	texts := make([]map[string]float64, len(all))
	lengths, total := make([]float64, len(all)), 0.0
	have := map[string]float64{}
	for i, text := range all {
		texts[i] = map[string]float64{}
		ws := splitWords(text)
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
	n := float64(len(all))
	return func(query string) (out []int) {
		scores := make([]float64, len(all))
		for i := range all {
			for _, w := range splitWords(query) {
				if times := texts[i][w]; times > 0 {
					rarity := math.Log(1 + (n-have[w]+0.5)/(have[w]+0.5))
					scores[i] += rarity * times * 2.2 / (times + 1.2*(0.25+0.75*lengths[i]*n/total))
				}
			}
			if scores[i] > 0 {
				out = append(out, i)
			}
		}
		slices.SortStableFunc(out, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
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
	all := madeOf(t, c, Options{}).Tools
	x := indexOf(all)
	for question, want := range map[string]string{
		"launch a machine": "startInstance", "urgent things": "listJobs", "the queue": "listJobs", "a callback": "addHook", "who is the current user": "userGet",
	} {
		if found := x.Find(question); len(found) == 0 || all[found[0]].Name != want {
			t.Errorf("%s: %v, want %s", question, found, want)
		}
	}
}
