package token

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const (
	maxName  = 256 // bytes of who the caller is
	maxDepth = 33  // arrays and objects in one another
)

// object checks that data is one JSON object, in which no name stands twice (I-019):
// of two that read it, each could take another one.
func object(data []byte) (gjson.Result, error) {
	switch {
	case rawjson.Deeper(data, maxDepth): // before what calls itself for each level
		return gjson.Result{}, errors.New("it is nested too deeply")
	case !utf8.Valid(data) || !gjson.ValidBytes(data):
		return gjson.Result{}, errors.New("it is no JSON")
	}
	v := gjson.ParseBytes(data)
	if !v.IsObject() {
		return v, errors.New("it is no object of JSON")
	}
	return v, single(v)
}

// single reports a name that stands twice in an object, however deep.
func single(v gjson.Result) (err error) {
	names := map[string]bool{}
	object := v.IsObject()
	v.ForEach(func(key, value gjson.Result) bool {
		if object {
			if names[key.Str] {
				err = errors.New("a claim is there twice")
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

// member returns the member of an object that has exactly that name.
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

// At returns the claim of that name. Where none has the whole name, dots lead into
// objects, as in realm_access.roles (I-051).
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

// Texts returns a claim as the texts that it can be compared by: of text, a number or
// a boolean one, of a list one for each of these in it, and of all else none.
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

// seconds reads a time of a token, which may have a fraction.
func seconds(v gjson.Result) (time.Time, bool) {
	if v.Type != gjson.Number || math.Abs(v.Num) > 1<<40 || math.IsNaN(v.Num) {
		return time.Time{}, false
	}
	whole, part := math.Modf(v.Num)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

// list reads a claim that is one text, or a list of texts.
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

// nameable reports whether a text may be who a caller is: it is shown in logs.
func nameable(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
	})
}

// CheckScope returns what is wrong with a scope (RFC 6749 §3.3).
func CheckScope(s string) (rule string) {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return "is no scope: it has visible ASCII characters, and neither quotes nor spaces"
	}
	return ""
}

// scopes returns what the claims allow, with what is implied by that, sorted.
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
			return nil, errors.New("its scopes are neither text nor a list of texts")
		}
		for _, w := range words {
			add(strings.Fields(w))
		}
	}
	for n := 0; n < len(all); n++ { // all grows
		add(i.o.Implies[all[n]])
	}
	slices.Sort(all)
	return all, nil
}
