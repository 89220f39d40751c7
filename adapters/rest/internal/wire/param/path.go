package param

import (
	"net/url"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
)

// path returns the encoded path of a template with its parameters filled, and the template's own
// query.
func (a *assembly) path(template string) (path, query string, err error) {
	template, _, _ = strings.Cut(template, "#")
	template, query, _ = strings.Cut(template, "?")
	if !strings.HasPrefix(template, "/") {
		template = "/" + template
	}
	var b strings.Builder
	var filled []bool // by segment: whether an argument is in it
	touch := func(s string, argument bool) {
		for i, part := range strings.Split(s, "/") {
			if i > 0 || filled == nil {
				filled = append(filled, false)
			}
			if argument && part != "" {
				filled[len(filled)-1] = true
			}
		}
		b.WriteString(s)
	}
	for template != "" {
		before, rest, open := strings.Cut(template, "{")
		name, after, closed := strings.Cut(rest, "}")
		if !open || !closed {
			touch(literal(template, literalPath), false)
			break
		}
		touch(literal(before, literalPath), false)
		value, err := a.inPath(name)
		if err != nil {
			return "", "", err
		}
		touch(value, true)
		template = after
	}
	for i, segment := range strings.Split(b.String(), "/") {
		if filled[i] && climbs(segment) {
			return "", "", Refuse("the path must not contain the segment %q", segment)
		}
	}
	return b.String(), literal(query, literalQuery), nil
}

// inPath returns the encoded value for {name}.
func (a *assembly) inPath(name string) (string, error) {
	for _, arg := range a.tool.Arguments {
		p := arg.Parameter
		if arg.Place != openapi.InPath || p == nil || p.Name != name {
			continue
		}
		v, ok := a.values[arg.Name]
		if !ok || absent(v) {
			return "", Refuse("%s: is missing: the path needs it", arg.Name)
		}
		keep := Unreserved
		if p.AllowReserved {
			keep = reservedPath
		}
		s := styledParameter(arg.Name, p, v, keep)
		value, err := "", error(nil)
		if p.ContentType != "" {
			value, err = content(arg.Name, p.ContentType, v)
			value = Escape(value, keep)
		} else {
			value, err = s.path()
		}
		switch {
		case err != nil:
			return "", err
		case value == "":
			return "", Refuse("%s: must not be empty: it is a part of the path", arg.Name)
		case climbs(value):
			return "", Refuse("%s: must not have . or .. as a part of the path", arg.Name)
		case hasNUL(value):
			return "", Refuse("%s: must not contain a NUL character: many servers end the value there", arg.Name)
		}
		return value, nil
	}
	return "", Refuse("the path has {%s}, but the operation has no such parameter", name)
}

// climbs reports whether an encoded value is the segment "." or has a segment "..", for a server that
// decodes slashes, or that decodes several times. Many servers remove ".." and the segment before it.
func climbs(value string) bool {
	if !strings.ContainsAny(value, ".%") {
		return false
	}
	for range 5 {
		parts := strings.FieldsFunc(value, func(c rune) bool { return c == '/' || c == '\\' })
		for _, part := range parts {
			// Some servers take the text after ; for parameters of the segment.
			if part, _, _ = strings.Cut(part, ";"); part == ".." || part == "." && len(parts) == 1 {
				return true
			}
		}
		decoded := unescape(value)
		if decoded == value {
			return false
		}
		value = decoded
	}
	return false
}

// hasNUL reports whether an encoded value has a NUL character for a server that decodes it, once or
// several times.
func hasNUL(value string) bool {
	for range 5 {
		if strings.Contains(value, "%00") || strings.Contains(value, "\x00") {
			return true
		}
		decoded := unescape(value)
		if decoded == value {
			break
		}
		value = decoded
	}
	return false
}

// Join appends an encoded path to a base, with one slash between them, and a query to that of the
// base.
func Join(base *url.URL, path, query string) (*url.URL, error) {
	raw := strings.TrimRight(base.EscapedPath(), "/") + "/" + strings.TrimPrefix(path, "/")
	plain, err := url.PathUnescape(raw)
	if err != nil {
		return nil, Refuse("the path is not valid")
	}
	u := &url.URL{
		Scheme:   base.Scheme,
		Host:     base.Host,
		Path:     plain,
		RawPath:  raw,
		RawQuery: base.RawQuery,
	}
	if u.EscapedPath() != raw {
		return nil, Refuse("the path is not valid")
	}
	if query != "" {
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += query
	}
	return u, nil
}
