// Package find finds tools by everyday words.
//
// [Read] reads the relevant parts of a tool's definition, [New] makes an [Index] of several tools, and [Index.Find]
// ranks the tools for a query.
package find

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/similar"
)

// Index ranks tools like BM25F. A word counts more if fewer tools have it, if its field has more weight, and if its
// field is shorter. A tool also scores more if the question has more words of the tool's name, and if the tool does the
// act that the question requests.
//
// An Index does not change, and is safe for concurrent use.
type Index struct {
	traits []trait // by the index of the tools
	terms  []term  // sorted by word
}

// term is a stemmed word with its occurrences.
type term struct {
	word     string
	joined   bool    // no field has the word, which joins two adjacent words of a name
	rarity   float32 // the IDF of BM25: higher if fewer tools have the word
	postings []posting
}

// posting holds how relevant a word is for a tool.
type posting struct {
	tool   uint32
	weight float32 // 0 to 1
	core   bool    // the tool's name or resource has the word, and the word is not a verb
}

// These constants are the fields of a tool that an Index searches.
const (
	ofName = iota
	ofTitle
	ofResource // the last part of a request's path that is not an argument: the thing on which the operation acts
	ofPath     // the parts before ofResource that are not arguments
	ofServer
	ofFirst // the first sentence of the description
	ofText  // the rest of the beginning of the description
	ofArgs  // the names of arguments and of members of a body, and their enum values
	kinds
)

// fields holds the weight of a word in each field, and how much the length of the field reduces this weight: from 0 to
// 1, b of BM25.
var fields = [kinds]struct{ weight, length float64 }{
	ofName:     {1.2, 0.6},
	ofTitle:    {1.5, 0.6},
	ofResource: {1.5, 0.6},
	ofPath:     {1, 0.5},
	ofServer:   {1, 0.5},
	ofFirst:    {1, 0.6},
	ofText:     {0.7, 0.6},
	ofArgs:     {0.3, 0.6},
}

// These values were chosen with questions about twenty APIs. None of them is critical: with half or twice a value,
// searches find nearly the same tools.
const (
	described  = 300  // maximum bytes of a description
	argued     = 500  // maximum bytes of ofArgs
	saturation = 1.5  // k1 of BM25
	coverage   = 0.7  // share of the score that depends on how much of a tool's name the question covers
	verbShare  = 0.5  // weight of the verb at the beginning of a question; trait.matches counts the verb too
	partShare  = 0.4  // weight of a term that begins with the word of the query, or vice versa
	asShare    = 0.5  // share of the score that depends on how much of the question the tool has
	pairShare  = 0.6  // weight of a synonym
	selfShare  = 0.7  // weight of askers if the question has a word of selves
	otherwise  = 0.6  // factor for tools that do another act than the requested act
	shaped     = 1.2  // factor for tools whose path ends as the act suggests: get with an argument, list without
	readable   = 1.05 // factor for tools that read if the question requests no act
)

func New(tools []Tool) *Index {
	x := &Index{traits: make([]trait, len(tools))}
	type place struct {
		tool  uint32
		times [kinds]uint16
	}
	type entry struct {
		places []place
		alone  bool // a field has the word itself, not only joined words
	}
	all := map[string]*entry{}
	lengths := make([][kinds]float64, len(tools))
	var total [kinds]float64
	for i := range tools {
		t := &tools[i]
		add := func(kind int, word string, alone bool) {
			e := all[word]
			if e == nil {
				e = &entry{}
				all[strings.Clone(word)] = e
			}
			if n := len(e.places); n == 0 || e.places[n-1].tool != uint32(i) {
				e.places = append(e.places, place{tool: uint32(i)})
			}
			e.places[len(e.places)-1].times[kind]++
			e.alone = e.alone || alone
		}
		x.traits[i] = traitOf(t)
		for kind, own := range t.keywords() {
			lengths[i][kind] = float64(len(own))
			total[kind] += float64(len(own))
			for j, w := range own {
				add(kind, w, true)
				if j > 0 && (kind == ofName || kind == ofResource) {
					add(kind, own[j-1]+w, false) // a question may write ConfigMap as one word
				}
			}
		}
	}
	n := float64(len(tools))
	x.terms = make([]term, 0, len(all))
	for w, e := range all {
		have := float64(len(e.places))
		t := term{
			word:     w,
			joined:   !e.alone,
			rarity:   float32(math.Log(1 + (n-have+0.5)/(have+0.5))),
			postings: make([]posting, len(e.places)),
		}
		for i, p := range e.places {
			sum := 0.0
			for kind, times := range p.times {
				if times > 0 {
					length := lengths[p.tool][kind] / (total[kind] / n)
					sum += fields[kind].weight * float64(times) / (1 - fields[kind].length + fields[kind].length*length)
				}
			}
			core := p.times[ofName]+p.times[ofResource] > 0 && e.alone && verbs[w] == 0
			if core {
				x.traits[p.tool].core += t.rarity
			}
			t.postings[i] = posting{p.tool, float32(sum / (saturation + sum)), core}
		}
		x.terms = append(x.terms, t)
	}
	slices.SortFunc(x.terms, func(t, b term) int { return strings.Compare(t.word, b.word) })
	return x
}

// keywords returns the stems of a text, without stops.
func keywords(text string) []string {
	return slices.DeleteFunc(stems(text), func(w string) bool { return stops[w] })
}

// trait holds the data on which a tool's rank depends, besides the occurrences of words.
type trait struct {
	name          string
	named, method act     // acts of the tool, by its name or title, and by its HTTP method or annotations; 0 if unknown
	one           bool    // the path ends with an argument, so the tool acts on one of many things
	core          float32 // total rarity of the words with posting.core
}

func traitOf(t *Tool) trait {
	out := trait{name: strings.Clone(t.name), one: t.one} // t.name is a part of the whole definition
	switch t.method {
	case "":
		if t.reads {
			out.method = reads
		}
	case "POST", "PUT":
		out.method = actCreate | actUpdate
	case "PATCH":
		out.method = actUpdate
	case "DELETE":
		out.method = actDelete
	default:
		out.method = actList
		if t.one {
			out.method = actGet
		}
	}
	for _, w := range stems(t.name) {
		if out.named = verbs[w]; out.named != 0 {
			break
		}
	}
	if out.named == 0 {
		first, _, _ := strings.Cut(t.title, " ")
		out.named = verbs[stem(strings.ToLower(first))]
	}
	if out.named&reads != 0 {
		out.named |= out.method & reads // many tools with get in their names return a list
	}
	return out
}

// matches returns the factor for a tool's score if the question requests the act want.
func (t *trait) matches(want act) float32 {
	does := t.named
	if does == 0 || want == actOther {
		does = t.method
	}
	switch {
	case does == 0:
	case want == 0: // the question names only a thing, so the user probably wants to see the thing
		if does&reads != 0 {
			return readable
		}
	case want == actOther:
		if does&reads != 0 {
			return otherwise
		}
	case want&does == 0:
		if want&reads == 0 || does&reads == 0 {
			return otherwise
		}
	case t.one == (want&(actCreate|actList) == 0):
		return shaped
	}
	return 1
}

// Find returns the indexes of the tools that have a word of the query, best first. A query without words, or with only
// stops, selects all tools.
func (x *Index) Find(query string) []int {
	asked := x.ask(query)
	scores := make([]float32, len(x.traits))
	covered := make([]float32, len(x.traits)) // how much of trait.core the query covers
	best := make([]float32, len(x.traits))    // the score of the current word
	had := make([]float32, len(x.traits))     // total weight of the query's words that the tool has
	var total float32                         // total weight of the query's words
	var touched []uint32
	for _, forms := range asked.words {
		touched = touched[:0]
		weight := float32(0)
		for _, form := range forms {
			weight = max(weight, form.weight)
			for _, p := range form.postings {
				if best[p.tool] == 0 {
					touched = append(touched, p.tool)
				}
				best[p.tool] = max(best[p.tool], p.weight*form.weight)
				if p.core {
					covered[p.tool] += form.rarity
				}
			}
		}
		for _, i := range touched {
			scores[i] += best[i]
			had[i] += weight
			best[i] = 0
		}
		total += weight
	}
	var found []int
	for i := range x.traits {
		if asked.unknown || scores[i] == 0 && len(asked.words) > 0 {
			continue
		}
		found = append(found, i)
		trait := &x.traits[i]
		scores[i] *= trait.matches(asked.act)
		if trait.core > 0 {
			scores[i] *= 1 - coverage + coverage*min(1, covered[i]/trait.core)
		}
		if total > 0 {
			scores[i] *= 1 - asShare + asShare*had[i]/total
		}
		if trait.name == query {
			scores[i] = math.MaxFloat32
		}
	}
	slices.SortStableFunc(found, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
	return found
}

// maxNear is how many words Near returns at most.
const maxNear = 5

// Near returns words of tools that resemble words of the query. It is for a query that found nothing.
func (x *Index) Near(query string) (near []string) {
	all := make([]string, 0, len(x.terms))
	for i := range x.terms {
		if !x.terms[i].joined {
			all = append(all, x.terms[i].word)
		}
	}
	asked := words(query)
	seen := map[string]bool{}
	for _, w := range asked[:min(len(asked), askedWords)] {
		if w = stem(w); stops[w] || len(w) < 3 || seen[w] {
			continue
		}
		seen[w] = true
		for _, n := range similar.Names(w, all) {
			if !slices.Contains(near, n) {
				near = append(near, n)
			}
		}
		if len(near) >= maxNear {
			return near[:maxNear]
		}
	}
	return near
}

// question is a parsed query.
type question struct {
	words   [][]form // for each word of the query, the terms that match it
	unknown bool     // the query has words, but no term matches any of them
	act     act      // the requested act; 0 if the query requests none
}

// form is a term that matches a word of the query. weight is the term's rarity, or a part of it.
type form struct {
	*term
	weight float32
}

// askedWords bounds the number of words in a query. Further words are ignored.
const askedWords = 20

// ask parses a query.
func (x *Index) ask(query string) question {
	var q question
	all := words(query)
	all = all[:min(len(all), askedWords)]
	var kept []string
	self := false
	for i, w := range all {
		w = stem(w)
		self = self || selves[w]
		if i == 0 && asking[w] || i == 1 && amounts[w] {
			q.act = reads
		}
		if selves[w] || stops[w] {
			continue
		}
		if len(kept) == 0 {
			if a := verbs[w]; a != 0 {
				q.act = a
			} else if q.act == 0 && i+1 < len(all) && afterVerb[all[i+1]] {
				q.act = actOther // such as "reboot a server"
			}
		}
		kept = append(kept, w)
	}
	add := func(forms []form, share float32) {
		for i := range forms {
			forms[i].weight *= share
		}
		if len(forms) > 0 {
			q.words = append(q.words, forms)
		}
	}
	for i, w := range kept {
		forms := x.forms(w)
		for _, form := range x.exact(synonyms[w]...) {
			form.weight *= pairShare
			forms = append(forms, form)
		}
		if i > 0 {
			forms = append(forms, x.exact(kept[i-1]+w)...)
		}
		if i+1 < len(kept) {
			both := w + kept[i+1]
			forms = append(forms, x.exact(both)...)
			for _, form := range x.exact(synonyms[both]...) {
				form.weight *= pairShare
				forms = append(forms, form)
			}
		}
		share := float32(1)
		if i == 0 && verbs[w] != 0 {
			share = verbShare
		}
		add(forms, share)
	}
	if self && len(kept) == 0 { // such as "who am I"
		add(x.exact(callers...), 1)
	}
	if self {
		add(x.exact(askers...), selfShare)
	}
	q.unknown = len(q.words) == 0 && (self || len(kept) > 0)
	return q
}

// exact returns the terms that equal one of the words.
func (x *Index) exact(ws ...string) []form {
	var out []form
	for _, w := range ws {
		if i, ok := x.search(w); ok {
			out = append(out, form{&x.terms[i], x.terms[i].rarity})
		}
	}
	return out
}

func (x *Index) search(w string) (int, bool) {
	return slices.BinarySearchFunc(x.terms, w, func(t term, w string) int { return strings.Compare(t.word, w) })
}

// manyForms bounds the number of longer terms that begin with a word of the query.
const manyForms = 40

// forms returns the terms that match a word: the word itself, longer terms that begin with the word, and shorter terms
// with which the word begins, such as repo for repository.
func (x *Index) forms(w string) []form {
	out := x.exact(w)
	if len(w) < 3 {
		return out
	}
	part := func(i int) {
		if t := &x.terms[i]; !t.joined {
			out = append(out, form{t, t.rarity * partShare})
		}
	}
	i, _ := x.search(w)
	for ; i < len(x.terms) && strings.HasPrefix(x.terms[i].word, w) && len(out) < manyForms; i++ {
		if len(x.terms[i].word) >= len(w)+2 {
			part(i)
		}
	}
	for n := len(w) - 3; n >= 3; n-- {
		if i, ok := x.search(w[:n]); ok {
			part(i)
		}
	}
	return out
}
