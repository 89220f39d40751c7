package token

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const (
	maxName  = 256 // bytes of a subject or client
	maxDepth = 33  // levels of nested arrays and objects
)

// object parses a JSON object. It refuses an object in which a name occurs twice, since two readers could use different
// members (I-019).
func object(data []byte) (gjson.Result, error) {
	switch {
	case rawjson.Deeper(data, maxDepth): // before the checks below, which recurse for each level
		return gjson.Result{}, errors.New("it is nested too deeply")
	case !utf8.Valid(data) || !gjson.ValidBytes(data):
		return gjson.Result{}, errors.New("it is not JSON")
	}
	v := gjson.ParseBytes(data)
	if !v.IsObject() {
		return v, errors.New("it is not a JSON object")
	}
	return v, single(v)
}

// single returns an error if a name occurs twice in an object, at any depth.
func single(v gjson.Result) (err error) {
	names := map[string]bool{}
	object := v.IsObject()
	v.ForEach(func(key, value gjson.Result) bool {
		if object {
			if names[key.Str] {
				err = errors.New("a claim occurs twice")
				return false
			}
			names[key.Str] = true
		}
		if value.IsObject() || value.IsArray() {
			err = single(value)
		}
		return err == nil
	})
	return err
}

// member returns the member of an object with exactly that name. gjson would interpret the name as a path.
func member(v gjson.Result, name string) (found gjson.Result) {
	if !v.IsObject() {
		return found
	}
	v.ForEach(func(key, value gjson.Result) bool {
		if key.Str == name {
			found = value
			return false
		}
		return true
	})
	return found
}

// At returns the claim with that name. If no claim has it, dots in name lead into objects, as in realm_access.roles
// (I-051).
func At(claims gjson.Result, name string) gjson.Result {
	if v := member(claims, name); v.Exists() {
		return v
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if v := At(member(claims, name[:i]), name[i+1:]); v.Exists() {
			return v
		}
	}
	return gjson.Result{}
}

// Texts returns the texts of a claim, for comparisons. A text, a number or a boolean has one text, and a list has those
// of its items. Other values have none.
func Texts(v gjson.Result) (all []string) {
	switch {
	case v.Type == gjson.String:
		return []string{v.Str}
	case v.Type == gjson.Number:
		return []string{v.Raw}
	case v.Type == gjson.True, v.Type == gjson.False:
		return []string{v.Raw}
	case v.IsArray():
		v.ForEach(func(_, item gjson.Result) bool {
			if !item.IsArray() {
				all = append(all, Texts(item)...)
			}
			return true
		})
	}
	return all
}

// seconds parses a time in a token, in seconds with an optional fraction.
func seconds(v gjson.Result) (time.Time, bool) {
	if v.Type != gjson.Number || math.Abs(v.Num) > 1<<40 || math.IsNaN(v.Num) {
		return time.Time{}, false
	}
	whole, part := math.Modf(v.Num)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

// list parses a claim that is one text, or a list of texts.
func list(v gjson.Result) (all []string, ok bool) {
	switch {
	case v.Type == gjson.String:
		return []string{v.Str}, true
	case v.IsArray():
		ok = true
		v.ForEach(func(_, item gjson.Result) bool {
			ok = item.Type == gjson.String
			all = append(all, item.Str)
			return ok
		})
	}
	return all, ok
}

// validName reports whether a text may name a caller in logs.
func validName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
	})
}

// CheckScope returns the rule that a scope breaks (RFC 6749 §3.3), or "".
func CheckScope(s string) (rule string) {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return "must be a scope: visible ASCII characters without spaces, quotes and backslashes"
	}
	return ""
}

// scopes returns the scopes in the claims, and the scopes that these include, sorted.
func (i *issuer) scopes(claims gjson.Result) ([]string, error) {
	names := []string{"scope", "scp"}
	if i.o.ScopeClaim != "" {
		names = []string{i.o.ScopeClaim}
	}
	var all []string
	has := map[string]bool{}
	add := func(scopes []string) {
		for _, s := range scopes {
			if !has[s] {
				has[s] = true
				all = append(all, s)
			}
		}
	}
	for _, name := range names {
		v := At(claims, name)
		if !v.Exists() || v.Type == gjson.Null {
			continue
		}
		words, ok := list(v)
		if !ok {
			return nil, errors.New("its scopes must be a text or a list of texts")
		}
		for _, w := range words {
			add(discovery.SplitScopes(w))
		}
	}
	for n := 0; n < len(all); n++ { // all grows in the loop
		add(i.o.Implies[all[n]])
	}
	slices.Sort(all)
	return all, nil
}
