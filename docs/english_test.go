package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A habit is a way to say something that readers stumble over, with what to
// say instead, and a sentence that has it.
var habits = []struct{ pattern, better, sample string }{
	{`\b(is|are|was|be) found out\b|\bfinds? out (what|which)\b|, which finds out\b`, `"is detected"`, "Which transport it speaks is found out."},
	{`\bleft alone\b|\bleaves? (it|the server) alone\b`, `"its circuit breaker is open"`, "A failing server is left alone for a while."},
	{`\b(is|are|were) made again\b`, `"is retried"`, "Lists are made again when they had no answer."},
	{`\bsigns? of life\b`, `"activity", "idle", "ping"`, "A call without a sign of life ends."},
	{`(?i)\bkept lists\b|\blists (that )?are kept\b`, `"cached lists"`, "Servers are guarded: lists are kept."},
	{`\bbelongs? into\b`, `"put it in"`, "Secrets belong into env."},
	{`\bin one another\b`, `"nested"`, "Arrays in one another."},
	{`(?i)\bwhat (else )?stands (behind|between|before|in)\b`, "name the thing", "What stands between clients and a server."},
	{`\ball that it takes\b|\bas far as it has\b`, "say what to do", "Its document is all that it takes."},
	{`(^|[.:;] )Who (shows?|has|is|comes?|asks?|knows?|can|wants?|calls?|reads?)\b[^?]*$`, `"a caller that"`, "Who shows no key gets the status."},
	{`\bfor who\b|\bto who(ever)?\b|\bof who\b`, `"for a caller that"`, "It does nothing for who does not know it."},
	{`\b(can|could)(not)? be had\b`, `"is not available"`, "While a server cannot be had."},
	{`(?i)\bdoes? no harm\b|\bcannot do harm\b`, `"is idempotent"`, "What does no harm is repeated."},
	{`\bcannot be told whose\b|\bthat is nobody's\b`, `"unknown"`, "What cannot be told whose it is goes to nobody."},
	{`\bgiven out\b`, `"served"`, "Old lists are given out."},
	{`\bbut for (the|a|its?|what|calls|lists)\b`, `"except"`, "All of them, but for the last."},
	{`(?i)\bso (is|does|are|do) (what|all that)\b`, "a sentence with the subject first", "So does what was asked for."},
	{`\bOf (the )?(HTTP )?(\[?HTTP )?(APIs?|servers?|clients?|calls?|resources?)\]?(\(\S+\))? (it|the bridge|there)\b`, "subject first", "Of APIs it also reads the documents."},
	{`\bhas to have\b[^.]*\bsees to\b`, "an imperative", "What the header has to have, an argument sees to."},
	{`\b(is|are) worth nothing without\b|\bworth (something|nothing)\b`, "say when to use it", "Deployments that are worth nothing without each."},
	{`\bmay have got\b`, `"may have received"`, "A call that a server may have got."},
	{`\bstarts? (it|the time) anew\b|\bmade anew\b`, `"reset", "restart"`, "Progress starts it anew."},
	{`\bput in words\b`, `"turned into text"`, "Contents are put in words."},
	{`(?i)\bserver's questions?\b|\bquestions? of (a|the) server\b`, `"server request"`, "The server's questions are put on the terminal."},
	{`(^|[.:] )What (is|was|has|comes|may)\b[^?.|]*\.`, "name the thing: a subject and a verb", "What is hidden cannot be called."},
	{`(^|[.:;] )So (is|does|are|do) `, "a sentence with the subject first", "So does a tool that is hidden."},
	{`\bfares?\b`, `"state"`, "It shows how its servers fare."},
	{`\bnew start\b`, `"restart"`, "After a new start of the server."},
}

// A finder finds a habit. Only a text with one of its words can have the habit:
// to look for words is a hundred times as fast as to look for a pattern.
type finder struct {
	pattern *regexp.Regexp
	words   []string // in lower case
}

// finders are those of the habits.
var finders = func() (all []finder) {
	for _, h := range habits {
		tree, err := syntax.Parse(h.pattern, syntax.Perl)
		if err != nil {
			panic(err)
		}
		all = append(all, finder{regexp.MustCompile(h.pattern), oneOf(tree)})
	}
	return all
}()

// oneOf returns words, in lower case, of which one is in each text that matches.
// It returns none if there may be a match without any.
func oneOf(tree *syntax.Regexp) (words []string) {
	shortest := func(words []string) int {
		n := 0
		for i, w := range words {
			if i == 0 || len(w) < n {
				n = len(w)
			}
		}
		return n
	}
	switch tree.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(tree.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return oneOf(tree.Sub[0])
	case syntax.OpConcat:
		for _, part := range tree.Sub {
			if of := oneOf(part); shortest(of) > shortest(words) {
				words = of
			}
		}
	case syntax.OpAlternate:
		for _, branch := range tree.Sub {
			of := oneOf(branch)
			if shortest(of) == 0 {
				return nil
			}
			words = append(words, of...)
		}
	}
	return words
}

// stumbles returns the habits that a text has.
func stumbles(text string) []string {
	var found []string
	lower := strings.ToLower(text)
	for i, f := range finders {
		if !slices.ContainsFunc(f.words, func(w string) bool { return strings.Contains(lower, w) }) {
			continue
		}
		if m := f.pattern.FindString(text); m != "" {
			found = append(found, strconv.Quote(strings.TrimSpace(m))+": say "+habits[i].better)
		}
	}
	return found
}

func TestEnglishWrong(t *testing.T) {
	for i, h := range habits {
		if len(finders[i].words) == 0 {
			t.Errorf("%q has no word that each match has: it would never be looked for", h.pattern)
		}
		if len(stumbles(h.sample)) == 0 {
			t.Errorf("%q is not seen in %q", h.pattern, h.sample)
		}
	}
	if got := stumbles("The bridge detects the transport, caches lists, and retries idempotent requests."); len(got) > 0 {
		t.Errorf("plain English is found wanting: %q", got)
	}
}

// Pages are written so that nobody has to read a sentence twice.
func TestEnglish(t *testing.T) {
	for _, p := range pages(t) {
		if p.name == "CHANGELOG.md" {
			continue // what was said then
		}
		for i, line := range strings.Split(fenced.ReplaceAllStringFunc(p.text, func(b string) string { return strings.Repeat("\n", strings.Count(b, "\n")) }), "\n") {
			for _, found := range stumbles(line) {
				t.Errorf("%s:%d: %s", p.name, i+1, found)
			}
		}
	}
}

// So are messages, help texts and descriptions in the program.
func TestEnglishOfMessages(t *testing.T) {
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			lit, ok := node.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || !strings.Contains(text, " ") {
				return true
			}
			n++
			for _, found := range stumbles(strings.ReplaceAll(text, "\n", " ")) {
				t.Errorf("%s: %s", set.Position(lit.Pos()), found)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 500 {
		t.Errorf("only %d texts: the test looks in the wrong place", n)
	}
}
