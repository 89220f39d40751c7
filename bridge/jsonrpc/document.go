package jsonrpc

import "sort"

// Document is JSON that was checked. What is needed to take parts of it is noted
// in the same pass: going over 1 MB of small objects once more takes 1.5 ms.
type Document struct {
	// Text is the JSON without white space between its parts. It is the bytes that
	// were read when there was none.
	Text  []byte
	large []extent // by where they begin
}

// extent is where an array or object stands in the text, and how many items or
// members it has.
type extent struct{ begin, end, n int }

// largeSize is from which size on arrays and objects are noted: it bounds what the
// notes take.
const largeSize = 16 << 10

// Read is Valid, and returns the document.
func Read(b []byte, deep int) (*Document, bool) {
	d := new(Document)
	s := scanner{b: b, doc: d}
	end := s.value(s.space(0), maxDepth-min(deep, maxDepth), other)
	if end < 0 || s.space(end) != len(b) {
		return nil, false
	}
	if d.Text == nil {
		d.Text = b
	} else {
		d.Text = append(d.Text, b[s.done:]...)
	}
	return d, true
}

// Large returns where the array or object that begins at an index of the text
// ends, and how many items or members it has. It reports false of those that are
// not large.
func (d *Document) Large(i int) (end, n int, ok bool) {
	at := sort.Search(len(d.large), func(k int) bool { return d.large[k].begin >= i })
	if at == len(d.large) || d.large[at].begin != i {
		return 0, 0, false
	}
	return d.large[at].end, d.large[at].n, true
}

// leave leaves white space out of the text.
func (s *scanner) leave(from, to int) {
	if s.doc.Text == nil {
		s.doc.Text = make([]byte, 0, len(s.b))
	}
	s.doc.Text = append(s.doc.Text, s.b[s.done:from]...)
	s.gone += to - from
	s.done = to
}

// open notes that an array or object begins at i.
func (s *scanner) open(i int) int {
	if s.doc == nil {
		return 0
	}
	s.doc.large = append(s.doc.large, extent{begin: i - s.gone})
	return len(s.doc.large) - 1
}

// close notes that the array or object of a note ends before i. Those within it are
// smaller: when it is too small, its note is the last one and goes.
func (s *scanner) close(slot, i, n int) int {
	if s.doc == nil {
		return i
	}
	if x := &s.doc.large[slot]; i-s.gone-x.begin < largeSize {
		s.doc.large = s.doc.large[:slot]
	} else {
		x.end, x.n = i-s.gone, n
	}
	return i
}
