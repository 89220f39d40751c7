package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// MaxPath bounds the gjson paths of errors, in bytes.
const MaxPath = 1 << 10

// settings reads the settings of a tool into its entry, within the limits of the configuration.
func settings(item gjson.Result, e *toolset.Entry) (err error) {
	if v := item.Get("timeout"); set(v) {
		if e.Timeout, err = time.ParseDuration(v.Str); v.Type != gjson.String || err != nil || e.Timeout <= 0 {
			return errors.New("timeout must be a duration such as 30s")
		}
	}
	if v := item.Get("retry"); off(v) {
		e.Attempts = 1
	} else if set(v) {
		if e.Attempts, err = strconv.Atoi(v.Raw); err != nil || e.Attempts < 1 {
			return errors.New("retry must be how often the request is made, or off")
		}
	}
	if v := item.Get("cache"); set(v) {
		on := !off(v)
		if e.Cache = &on; on && v.Type != gjson.True {
			if e.KeepFor, err = time.ParseDuration(v.Str); v.Type != gjson.String || err != nil || e.KeepFor <= 0 {
				return errors.New("cache must be true, off, or a duration such as 60s")
			}
		}
	}
	text, when := item.Get("error"), gjson.Result{}
	if text.IsObject() {
		text, when = text.Get("text"), text.Get("when")
	}
	for _, v := range []gjson.Result{text, when} {
		if set(v) && v.Type != gjson.String || len(v.Str) > MaxPath {
			return fmt.Errorf("error must be a gjson path of at most %d bytes, or an object with such paths under \"text\" and \"when\"", MaxPath)
		}
	}
	e.Error, e.ErrorIf = text.Str, when.Str
	if v := item.Get("limits.answer"); set(v) {
		n, err := strconv.Atoi(v.Raw)
		if err != nil || n < 1 {
			return errors.New("limits: answer must be a number of bytes")
		}
		e.Limits.Answer = setting.Size(n)
	}
	for _, f := range e.BoundFaults() {
		return errors.New(f.Text)
	}
	return nil
}

// set reports whether a value is there and not null.
func set(v gjson.Result) bool { return v.Type != gjson.Null }

// off reports whether a value is the word off, or false, which YAML 1.1 reads for off.
func off(v gjson.Result) bool {
	return v.Type == gjson.False || v.Type == gjson.String && v.Str == "off"
}
