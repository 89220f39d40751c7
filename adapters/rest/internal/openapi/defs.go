package openapi

import (
	"strconv"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// def returns the name under which a schema will be among the definitions. Nil
// stands for that of files.
func (w *render) def(n *tree.Node) string {
	key := defKey{n, w.files}
	d := w.defs[key]
	if d == nil {
		name := "File"
		if n != nil {
			if name = w.l.labels[n]; name == "" {
				name = "Schema"
			}
		}
		for base, i := name, 2; w.names[name]; i++ {
			name = base + "_" + strconv.Itoa(i)
		}
		d = &def{defKey: key, name: name, opt: w.opt}
		w.defs[key] = d
		w.names[name] = true
		w.order = append(w.order, d)
		w.open += w.stubSize(d)
		w.queue(d)
	} else if w.opt < d.opt && !d.done {
		d.opt = w.opt // there is a shorter way
		w.queue(d)
	}
	return d.name
}

func (w *render) queue(d *def) {
	for len(w.buckets) <= d.opt {
		w.buckets = append(w.buckets, nil)
	}
	w.buckets[d.opt] = append(w.buckets[d.opt], d)
}

// definitions writes $defs: those that are fewest optional properties away
// first. When space is short, the others only say what kind of value they are.
func (w *render) definitions() {
	if len(w.order) == 0 {
		return
	}
	w.key("$defs")
	w.b = append(w.b, '{')
	for level := 0; level < len(w.buckets); level++ {
		for i := 0; i < len(w.buckets[level]); i++ {
			d := w.buckets[level][i]
			if d.done {
				continue
			}
			d.done = true
			if w.stop() { // what refers to it must find something
				w.raw(d.name, "{}")
				continue
			}
			mark, known := len(w.b), len(w.order)
			w.open -= w.stubSize(d)
			w.trying = w.greedy
			w.define(d, false)
			w.trying = false
			if w.greedy && w.full() {
				for _, late := range w.order[known:] {
					late.done = true
					w.open -= w.stubSize(late)
					delete(w.defs, late.defKey)
					delete(w.names, late.name)
				}
				w.order = w.order[:known]
				w.b = w.b[:mark]
				w.define(d, true)
			}
		}
	}
	w.b = append(w.b, '}')
}

// stubSize is what a definition takes at most that only says what kind of
// value it is.
func (w *render) stubSize(d *def) int {
	if d.n == nil {
		return len(w.fileSchema()) + len(d.name) + 4
	}
	desc := min(len(d.n.Scalar("description")), w.longer, 100)
	// Descriptions may hold a few characters that need escaping.
	return len(d.name) + len(`"":{"type":["object","null"],"description":" ()"},`) + desc + desc/16 + len(w.note)
}

func (w *render) define(d *def, stub bool) {
	w.key(d.name)
	if d.n == nil {
		w.b = append(w.b, w.fileSchema()...)
		return
	}
	w.depth, w.opt, w.files, w.current, w.viaAll, w.mixed = 1, d.opt, d.files, d.n, false, false
	w.b = append(w.b, '{')
	if stub {
		w.stub(d.n, "")
	} else {
		w.members(d.n, d.name, "")
	}
	w.b = append(w.b, '}')
}

// hop is a way from one schema to another that leaves the value the same.
type hop struct {
	from, to *tree.Node
	all      bool // also through allOf
}

// reaches reports whether one schema leads to another without leaving the
// value that it describes.
func (l *loader) reaches(from, to *tree.Node, all bool) bool {
	h := hop{from, to, all}
	if known, ok := l.loops[h]; ok {
		return known
	}
	seen := map[*tree.Node]bool{}
	todo := []*tree.Node{from}
	found := false
	for len(todo) > 0 && !found {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		if n.Get("$ref").Is(tree.Text) {
			todo = append(todo, l.deref(n))
			continue
		}
		found = n == to || len(seen) > 2000 // too tangled to tell
		for _, word := range inPlace {
			next := n.Get(word)
			switch {
			case next == nil || word == "allOf" && !all:
			case next.Kind == tree.Array || word == "dependentSchemas":
				for i := range next.Members() {
					todo = append(todo, &next.Members()[i].Node)
				}
			default:
				todo = append(todo, next)
			}
		}
	}
	if len(l.loops) < 1<<16 {
		l.loops[h] = found
	}
	return found
}

// maxWays bounds how often a validator may have to look at one value.
const maxWays = 5000

// ways returns in how many ways a schema leads to others that describe the
// same value: what a validator has to go through.
func (l *loader) ways(n *tree.Node, depth int) int {
	known, ok := l.counts[n]
	if ok {
		return known
	}
	if depth > tree.MaxDepth {
		return maxWays + 1
	}
	l.counts[n] = 0 // a way back is no other way
	sum := 1
	add := func(c *tree.Node) {
		if c = l.soft(c); c != nil && sum <= maxWays {
			sum += l.ways(c, depth+1)
		}
	}
	for _, word := range inPlace {
		next := n.Get(word)
		if next.Is(tree.Array) || word == "dependentSchemas" {
			for i := range next.Members() {
				add(&next.Members()[i].Node)
			}
		} else if next != nil {
			add(next)
		}
	}
	l.counts[n] = sum
	return sum
}

// renames keeps track of property names that providers of models would refuse.
type renames struct {
	toOwn   map[string]string // by what is shown
	toShown map[string]string // by the document's name
	plain   map[string]bool   // names that are shown as they are; nil when nobody watches
	open    bool              // there are objects with names of the caller's choice
	hashed  bool              // make names that nobody else chooses
	clash   bool
}

// shown returns the name that models see.
func (r *renames) shown(own string) string {
	if isPlainName(own) {
		if r.plain != nil {
			if r.plain[own] = true; r.toOwn[own] != "" {
				r.clash = true
			}
		}
		return own
	}
	if s, ok := r.toShown[own]; ok {
		return s
	}
	s := cut64(plainName(own, true))
	if r.hashed || s == "" {
		s = tail(s, own, 64)
	}
	if _, taken := r.toOwn[s]; taken || r.plain[s] {
		r.clash = true
	}
	if r.toOwn == nil {
		r.toOwn, r.toShown = map[string]string{}, map[string]string{}
	}
	r.toOwn[s], r.toShown[own] = own, s
	return s
}

// again reports whether the schema has to be written once more: because a name
// had to be changed and the others were not watched, or with names that cannot
// be mistaken for others.
func (r *renames) again() bool {
	return len(r.toOwn) > 0 && (r.plain == nil || !r.hashed && (r.clash || r.open))
}

// next returns what to go on with when it is to be written again.
func (r *renames) next() renames {
	return renames{plain: map[string]bool{}, hashed: r.plain != nil}
}
