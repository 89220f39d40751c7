package wire

import (
	"bytes"
	"cmp"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Settings are what holds for the calls of one tool. What is zero is as
// Options has it.
type Settings struct {
	Timeout time.Duration // of a call with all its attempts; Options.MaxTimeout at most
	Retries int           // beyond the first attempt; negative for none
	// Repeat: the request may be sent again though its method does not promise
	// that this does no harm.
	Repeat bool
	// Uncached: answers are neither taken from the cache nor kept there.
	Uncached bool
	// KeepFor is how long an answer is fresh that does not say so itself.
	KeepFor time.Duration
	// Failure is a gjson path of what an answer that says no has to say. What has
	// nothing there is told as without it.
	Failure string
	// FailureIf is a gjson path of what answers with a status of success have when
	// they say no after all: something that is not false, null, 0 or empty.
	FailureIf string
	// Bounded: Failure, FailureIf and the call's Result are bounded as paths are
	// that models ask for.
	Bounded bool
	// MaxAnswer is how many bytes of text a result has.
	MaxAnswer int
	// Masked are the headers, by their canonical names, whose values a plan does not
	// show, whoever has set them.
	Masked []string
	// MaskedQuery are such parameters of the query.
	MaskedQuery []string
	// Sets: the configuration puts something into the tool's requests, such as a
	// header, which may be a secret.
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

// retries returns how often a request may be sent beyond the first time.
func (s *Source) retries(p *Plan) int {
	if !p.repeatable() {
		return 0
	}
	return max(cmp.Or(p.settings.Retries, s.o.Retries), 0)
}

// fails reports whether an answer with a status of success says no.
func (t *Settings) fails(a *answer) bool {
	if t.FailureIf == "" || a.more || a.streamed {
		return false
	}
	body := bytes.TrimPrefix(a.body, []byte("\xef\xbb\xbf"))
	if !usable(body, &answer{}) {
		return false
	}
	found, ok := t.shaped(body, t.FailureIf)
	return ok && !hollow(gjson.ParseBytes(found))
}

// hollow reports whether a value says nothing: false, null, 0, and what is
// empty.
func hollow(v gjson.Result) bool {
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

// told returns what the configuration has told of an answer that says no; empty
// when there is nothing.
func (t *Settings) told(body []byte) string {
	if t.Failure == "" {
		return ""
	}
	found, ok := t.shaped(body, t.Failure)
	if !ok {
		return ""
	}
	v := gjson.ParseBytes(found)
	if hollow(v) {
		return ""
	}
	if v.Type == gjson.String {
		return v.Str
	}
	return string(rawjson.Compact([]byte(v.Raw)))
}
