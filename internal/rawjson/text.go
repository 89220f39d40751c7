package rawjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// AppendString appends a text as a JSON string with as few escapes as possible. Unlike Quote, it does not escape <, >
// and &. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	return AppendText(dst, unsafe.Slice(unsafe.StringData(s), len(s)))
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// AppendText is AppendString for bytes. Texts may be large, so AppendText copies eight bytes at a time up to the next
// byte that needs an escape. Each mask is exact only up to its first hit, and the code uses only this hit.
func AppendText(dst, b []byte) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(b); {
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			n := len(dst)
			dst = binary.LittleEndian.AppendUint64(dst, x)
			q, e := x^'"'*ones, x^'\\'*ones
			hit := ((x-0x20*ones)&^x | (q-ones)&^q | (e-ones)&^e | x) & highs
			if hit == 0 {
				i += 8
				continue
			}
			plain := bits.TrailingZeros64(hit) / 8
			dst, i = dst[:n+plain], i+plain
			c := b[i]
			if c >= utf8.RuneSelf {
				break
			}
			dst = appendEscape(dst, c)
			i++
		}
		if i == len(b) {
			break
		}
		switch c := b[i]; {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, "\ufffd"...)
			} else {
				dst = append(dst, b[i:i+size]...)
			}
			i += size
		case c >= ' ' && c != '"' && c != '\\':
			dst = append(dst, c)
			i++
		default:
			dst = appendEscape(dst, c)
			i++
		}
	}
	return append(dst, '"')
}

// appendEscape appends a character that must be escaped in a string.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
