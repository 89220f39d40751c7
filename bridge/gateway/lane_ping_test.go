package gateway

import (
	"strings"
)

// pings counts what a server got of them.
func pings(f *fakeWire) (n int) {
	for _, line := range f.log() {
		if strings.Contains(line, `"method":"ping"`) {
			n++
		}
	}
	return n
}

func number(id []byte) (n int64) {
	for _, c := range id {
		n = 10*n + int64(c-'0')
	}
	return n
}
