package openapi

import (
	"strconv"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// def returns the name of a schema among the definitions. nil stands for the schema of files.
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

// definitions writes $defs: first those with the fewest optional properties on the way. If space is
// short, the others are stubs.
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
			if w.stop() { // references to it must resolve
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

// stubSize bounds a definition that only states the kind of a value.
func (w *render) stubSize(d *def) int {
	if d.n == nil {
		return len(w.fileSchema()) + len(d.name) + 4
	}
	desc := min(len(d.n.Scalar("description")), w.longer, 100)
	// Descriptions may contain a few characters that need escapes.
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

// hop is a step from one schema to another that describes the same value.
type hop struct {
	from, to *tree.Node
	all      bool // follows allOf too
}

// reaches reports whether one schema leads to another that describes the same value.
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
		found = n == to || len(seen) > 2000 // too complex to decide
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

// maxWays bounds how often a validator may check one value.
const maxWays = 5000

// ways counts the ways from a schema to others that describe the same value: the work of a
// validator.
func (l *loader) ways(n *tree.Node, depth int) int {
	known, ok := l.counts[n]
	if ok {
		return known
	}
	if depth > tree.MaxDepth {
		return maxWays + 1
	}
	l.counts[n] = 0 // a cycle is no other way
	sum := 1
	add := func(c *tree.Node) {
		if c = l.derefOptional(c); c != nil && sum <= maxWays {
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

// renames tracks property names that model providers would refuse.
type renames struct {
	toOwn   map[string]string // by shown name
	toShown map[string]string // by the document's name
	plain   map[string]bool   // names shown unchanged; nil if they are not tracked
	open    bool              // some objects have names chosen by the caller
	hashed  bool              // new names get a hash, so that they are unique
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

// mustRewrite reports whether the schema must be written again. A name was changed while others were not
// tracked, or names must become unique.
func (r *renames) mustRewrite() bool {
	return len(r.toOwn) > 0 && (r.plain == nil || !r.hashed && (r.clash || r.open))
}

// next returns the renames for writing again.
func (r *renames) next() renames {
	return renames{plain: map[string]bool{}, hashed: r.plain != nil}
}
