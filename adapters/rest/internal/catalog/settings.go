package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

// Settings are a catalogue's settings for the calls of a tool, within the limits of the
// configuration. Zero means the API's setting.
type Settings struct {
	// Timeout bounds a call with all its attempts.
	Timeout time.Duration
	// Attempts bounds how often the request of a call is sent; at most MaxAttempts.
	Attempts int
	// Cache says whether answers are cached; nil means the API's setting. KeepFor is how long an
	// answer stays fresh if the answer does not say so itself.
	Cache   *bool
	KeepFor time.Duration
	// Error is a gjson path to the message of an error answer. ErrorIf is a gjson path: an answer
	// with a success status is an error if its value there is not false, null, 0 or empty.
	Error, ErrorIf string
	// Answer bounds the text of a result, in bytes.
	Answer int
}

const (
	// MaxAttempts bounds Attempts.
	MaxAttempts = 10
	// MaxPath bounds the gjson paths of errors, in bytes.
	MaxPath = 1 << 10
	// MinAnswer is the smallest Answer, in bytes.
	MinAnswer = 1 << 10
)

// settings reads the settings of a tool.
func settings(item gjson.Result) (s Settings, err error) {
	if v := item.Get("timeout"); set(v) {
		if s.Timeout, err = time.ParseDuration(v.Str); v.Type != gjson.String || err != nil || s.Timeout <= 0 {
			return s, errors.New("timeout must be a duration such as 30s")
		}
	}
	if v := item.Get("retry"); off(v) {
		s.Attempts = 1
	} else if set(v) {
		if s.Attempts, err = strconv.Atoi(v.Raw); err != nil || s.Attempts < 1 || s.Attempts > MaxAttempts {
			return s, fmt.Errorf("retry must be how often the request is made, 1 to %d, or off", MaxAttempts)
		}
	}
	if v := item.Get("cache"); set(v) {
		on := !off(v)
		if s.Cache = &on; on && v.Type != gjson.True {
			if s.KeepFor, err = time.ParseDuration(v.Str); v.Type != gjson.String || err != nil || s.KeepFor <= 0 {
				return s, errors.New("cache must be true, off, or a duration such as 60s")
			}
		}
	}
	text, when := item.Get("error"), gjson.Result{}
	if text.IsObject() {
		text, when = text.Get("text"), text.Get("when")
	}
	for _, v := range []gjson.Result{text, when} {
		if set(v) && v.Type != gjson.String || len(v.Str) > MaxPath {
			return s, fmt.Errorf("error must be a gjson path of at most %d bytes, or an object with such paths under \"text\" and \"when\"", MaxPath)
		}
	}
	s.Error, s.ErrorIf = text.Str, when.Str
	if v := item.Get("limits.answer"); set(v) {
		if s.Answer, err = strconv.Atoi(v.Raw); err != nil || s.Answer < MinAnswer {
			return s, fmt.Errorf("limits: answer must be at least %d bytes", MinAnswer)
		}
	}
	return s, nil
}

// set reports whether a value is there and not null.
func set(v gjson.Result) bool { return v.Type != gjson.Null }

// off reports whether a value is the word off, or false, which YAML 1.1 reads for off.
func off(v gjson.Result) bool {
	return v.Type == gjson.False || v.Type == gjson.String && v.Str == "off"
}
