package tree

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"
)

// Parse parses a text as JSON or YAML, whichever it is. far reports whether the text refers to other
// texts. Every node gets the number of the file. Parse calls warn for omitted parts. data must not
// change afterwards, since nodes share its memory.
func Parse(data []byte, file uint16, warn func(line int32, text string)) (root *Node, far bool, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	defer func() {
		if err != nil && !utf8.Valid(data) {
			err = fmt.Errorf("line %d: %s", foreign(data), notUTF8)
		}
	}()
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 || start[0] != '{' && start[0] != '[' {
		return parseYAML(data, file, warn)
	}
	if root, far, err = parseJSON(data, file, warn); err == nil && !utf8.Valid(data) {
		warn(int32(min(foreign(data), math.MaxInt32)), notUTF8)
	} else if err != nil {
		// The text may be YAML that begins with a flow mapping. A warning may then appear twice.
		if other, leads, _ := parseYAML(data, file, warn); other != nil {
			return other, leads, nil
		}
	}
	return root, far, err
}

const notUTF8 = "has a character that is not UTF-8: save the document as UTF-8"

// foreign returns the line of the first byte that is not UTF-8.
func foreign(data []byte) int {
	at := bytes.IndexRune(data, utf8.RuneError) // finds invalid bytes as well
	return 1 + bytes.Count(data[:at], []byte("\n"))
}
