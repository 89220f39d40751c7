package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

// Settings are what a catalogue says of the calls of a tool, within what the
// configuration allows. What is zero is as for the others.
type Settings struct {
	// Timeout is how long a call may take with all its attempts.
	Timeout time.Duration
	// Attempts is how often a request is made, at most MaxAttempts.
	Attempts int
	// Cache says whether answers are kept; KeepFor for how long those are that do
	// not say so themselves.
	Cache   *bool
	KeepFor time.Duration
	// Error is a gjson path of what an answer that says no has to say, and ErrorIf
	// one of what answers of success have when they say no after all.
	Error, ErrorIf string
	// Answer is how many bytes of text a result has.
	Answer int
}

const (
	// MaxAttempts is how often a tool may have its request made.
	MaxAttempts = 10
	// MaxPath is how long a gjson path may be.
	MaxPath = 1 << 10
	// MinAnswer is the least that Answer may be.
	MinAnswer = 1 << 10
)

// settings reads the settings of a tool.
func settings(item gjson.Result) (s Settings, err error) {
	if v := item.Get("timeout"); set(v) {
		if s.Timeout, err = time.ParseDuration(v.Str); v.Type != gjson.String || err != nil || s.Timeout <= 0 {
			return s, errors.New("timeout is no time such as 30s")
		}
	}
	if v := item.Get("retry"); off(v) {
		s.Attempts = 1
	} else if set(v) {
		if s.Attempts, err = strconv.Atoi(v.Raw); err != nil || s.Attempts < 1 || s.Attempts > MaxAttempts {
			return s, fmt.Errorf("retry is neither how often the request is made, 1 to %d, nor off", MaxAttempts)
		}
	}
	if v := item.Get("cache"); set(v) {
		on := !off(v)
		if s.Cache = &on; on && v.Type != gjson.True {
			if s.KeepFor, err = time.ParseDuration(v.Str); v.Type != gjson.String || err != nil || s.KeepFor <= 0 {
				return s, errors.New("cache is neither true, nor off, nor a time such as 60s")
			}
		}
	}
	text, when := item.Get("error"), gjson.Result{}
	if text.IsObject() {
		text, when = text.Get("text"), text.Get("when")
	}
	for _, v := range []gjson.Result{text, when} {
		if set(v) && v.Type != gjson.String || len(v.Str) > MaxPath {
			return s, fmt.Errorf("error is no gjson path of at most %d bytes, and no object with such ones as text and when", MaxPath)
		}
	}
	s.Error, s.ErrorIf = text.Str, when.Str
	if v := item.Get("limits.answer"); set(v) {
		if s.Answer, err = strconv.Atoi(v.Raw); err != nil || s.Answer < MinAnswer {
			return s, fmt.Errorf("limits: answer is no number of bytes from %d on", MinAnswer)
		}
	}
	return s, nil
}

// set reports whether there is a value.
func set(v gjson.Result) bool { return v.Type != gjson.Null }

// off reports whether a value is the word off, or false, which older YAML takes it
// for.
func off(v gjson.Result) bool {
	return v.Type == gjson.False || v.Type == gjson.String && v.Str == "off"
}
