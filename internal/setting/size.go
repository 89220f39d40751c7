package setting

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes.
type Size int64

type unit struct {
	name  string
	bytes int64
}

// units returns the units, in the order in which String tries them.
func units() []unit {
	return []unit{
		{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
		{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
	}
}

// String returns the size without rounding, in the first unit of which it is a multiple, such as 16MiB.
func (s Size) String() string {
	for _, u := range units() {
		if n := int64(s); n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

// ParseSize parses a whole number of bytes, with an optional unit in upper or lower case. The units are B, KB, MB, GB
// (powers of 1000) and KiB, MiB, GiB (powers of 1024). The error does not show the text.
func ParseSize(text string) (Size, error) {
	wrong := errors.New("expected a number of bytes such as 16777216 or 16MiB")
	digits := strings.TrimRight(text, "kKmMgGiIbB ")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || digits[0] == '+' || digits[0] == '-' {
		return 0, wrong
	}
	unit := strings.TrimSpace(text[len(digits):])
	if unit == "" {
		return Size(n), nil
	}
	for _, u := range units() {
		if strings.EqualFold(unit, u.name) {
			if n > math.MaxInt64/u.bytes {
				return 0, errors.New("is too large")
			}
			return Size(n * u.bytes), nil
		}
	}
	return 0, wrong
}
