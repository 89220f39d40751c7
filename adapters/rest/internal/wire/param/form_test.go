package param

import "testing"

// A boundary that occurs in the content is not used.
func TestWithin(t *testing.T) {
	if !contain([]part{{data: []byte("a")}, {data: []byte("x0123y")}}, "0123") {
		t.Error("within does not find the boundary")
	}
	if contain([]part{{data: []byte("a")}, {data: []byte("x012")}}, "0123") {
		t.Error("within finds a boundary that is not there")
	}
}
