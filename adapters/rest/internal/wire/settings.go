package wire

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// fails reports whether an answer with a success status is an error by FailureIf.
func (s *Settings) fails(a *answer) bool {
	if s.FailureIf == "" || a.more || a.streamed {
		return false
	}
	body := bytes.TrimPrefix(a.body, []byte("\xef\xbb\xbf"))
	if !usable(body, &answer{}) {
		return false
	}
	found, ok := s.applyPath(body, s.FailureIf)
	return ok && !isEmpty(gjson.ParseBytes(found))
}

// isEmpty reports whether a value is false, null, 0 or empty.
func isEmpty(v gjson.Result) bool {
	switch v.Type {
	case gjson.Null, gjson.False:
		return true
	case gjson.Number:
		return v.Num == 0
	case gjson.String:
		return v.Str == ""
	case gjson.JSON:
		empty := true
		v.ForEach(func(_, _ gjson.Result) bool {
			empty = false
			return false
		})
		return empty
	}
	return false
}

// failureMessage returns the message that Failure finds in an error answer; empty if there is none.
func (s *Settings) failureMessage(body []byte) string {
	if s.Failure == "" {
		return ""
	}
	found, ok := s.applyPath(body, s.Failure)
	if !ok {
		return ""
	}
	v := gjson.ParseBytes(found)
	if isEmpty(v) {
		return ""
	}
	if v.Type == gjson.String {
		return v.Str
	}
	return string(rawjson.Compact([]byte(v.Raw)))
}
