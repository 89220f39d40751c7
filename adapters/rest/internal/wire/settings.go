package wire

import (
	"bytes"
	"cmp"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Settings are the settings of one tool's calls. Zero values mean those of Options.
type Settings struct {
	Timeout time.Duration // of a call with all its attempts; Options.MaxTimeout bounds it
	Retries int           // after the first attempt; none if negative
	// Repeat allows retries of a request even if its method is not idempotent.
	Repeat bool
	// Uncached says that answers neither come from the cache nor go into it.
	Uncached bool
	// KeepFor is how long an answer stays fresh if the answer does not say so itself.
	KeepFor time.Duration
	// Failure is a gjson path to the message of an error answer. If nothing is there, the answer is
	// shown as usual.
	Failure string
	// FailureIf is a gjson path. An answer with a success status is an error if its value there is
	// not false, null, 0 or empty.
	FailureIf string
	// Bounded says that Failure, FailureIf and the call's Result have the same limits as paths from
	// models.
	Bounded bool
	// MaxAnswer bounds the text of a result, in bytes.
	MaxAnswer int
	// Masked are canonical names of headers whose values a plan hides, whatever their source.
	Masked []string
	// MaskedQuery are query parameters whose values a plan hides.
	MaskedQuery []string
	// Sets says that the configuration adds texts to the tool's requests that may be secrets, such
	// as headers.
	Sets bool
}

// timeout returns how long a call may take.
func (s *Source) timeout(c *Call) time.Duration {
	t := cmp.Or(max(c.Settings.Timeout, 0), s.o.Timeout)
	if most := s.o.MaxTimeout; most > 0 {
		t = min(t, most)
	}
	return t
}

// maxAnswer returns how many bytes of text a result may have.
func (s *Source) maxAnswer(c *Call) int {
	return cmp.Or(max(c.Settings.MaxAnswer, 0), s.o.MaxAnswer)
}

// retries returns how often a request may be sent again.
func (s *Source) retries(p *Plan) int {
	if !p.repeatable() {
		return 0
	}
	return max(cmp.Or(p.settings.Retries, s.o.Retries), 0)
}

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
