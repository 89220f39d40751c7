package param

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// entry is one member of a form. field is nil if the document does not name the member.
type entry struct {
	name  string
	field *openapi.Field
	value gjson.Result
}

// entries returns the members of a form's value, without null, which a form cannot have. Those that
// the document names come first, in the document's order, since some servers read a form in one
// pass.
func entries(v gjson.Result, fields []*openapi.Field) []entry {
	values := map[string]gjson.Result{}
	var order []string
	v.ForEach(func(k, one gjson.Result) bool {
		if one.Type == gjson.Null {
			delete(values, k.String()) // the last member of a name counts
			return true
		}
		values[k.String()] = one
		order = append(order, k.String())
		return true
	})
	var out []entry
	for _, f := range fields {
		if one, ok := values[f.Name]; ok {
			out = append(out, entry{f.Name, f, one})
			delete(values, f.Name)
		}
	}
	for _, name := range order {
		if one, ok := values[name]; ok {
			out = append(out, entry{name, nil, one})
		}
	}
	return out
}

// formPairs encodes an object as application/x-www-form-urlencoded. Unless the document says
// otherwise, an array makes a pair of each item, and an object is JSON.
func (a *assembly) formPairs(arg string, v gjson.Result, fields []*openapi.Field) ([]string, error) {
	var out []string
	for _, e := range entries(v, fields) {
		pairs, err := a.formField(arg+"."+e.name, e)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			if p.name != Escape(e.name, Unreserved) { // a spread object must not set other fields
				for _, f := range fields {
					if f != e.field && Escape(f.Name, Unreserved) == p.name {
						return nil, Refuse("%s.%s: must not have a member called %s, as another field is", arg, e.name, f.Name)
					}
				}
			}
			out = append(out, p.String())
		}
	}
	return out, nil
}

func (a *assembly) formField(arg string, e entry) ([]pair, error) {
	s := styled{
		arg:     arg,
		name:    e.name,
		value:   e.value,
		style:   "form",
		explode: true,
		keep:    Unreserved,
	}
	f := e.field
	if f != nil {
		s.whole, s.collection = f.Type == "integer", f.CollectionFormat
	}
	switch {
	case f != nil && f.Styled:
		s.style, s.explode = f.Style, f.Explode
		if f.AllowReserved {
			s.keep = reservedQuery
		}
	case f != nil && f.File && e.value.Type == gjson.JSON && !e.value.IsArray():
		file, err := a.file(arg, e.value)
		if err != nil {
			return nil, err
		}
		return []pair{{Escape(e.name, Unreserved), Escape(string(file.Data), Unreserved)}}, nil
	case e.value.IsObject(), f != nil && httpio.IsJSON(f.ContentType) && e.value.Type == gjson.JSON:
		return []pair{{Escape(e.name, Unreserved), Escape(string(rawjson.Compact([]byte(e.value.Raw))), Unreserved)}}, nil
	}
	return s.pairs()
}

// allParts returns the parts of a body, from the members of an object, or from the items of an array,
// which have no names.
func (a *assembly) allParts(arg string, m *openapi.MediaType, v gjson.Result) (all []part, err error) {
	if m.Items != nil {
		if !v.IsArray() {
			return nil, Refuse("%s: must be an array", arg)
		}
		for i, one := range v.Array() {
			p, err := a.part(fmt.Sprintf("%s[%d]", arg, i), "", m.Items[min(i, len(m.Items)-1)], one)
			if err != nil {
				return nil, err
			}
			p.header.Del("Content-Disposition")
			all = append(all, p)
		}
		return all, nil
	}
	if !v.IsObject() {
		return nil, Refuse("%s: must be an object", arg)
	}
	for _, e := range entries(v, m.Fields) {
		if strings.ContainsFunc(e.name, isControl) {
			return nil, Refuse("%s: a name has a line break or another control character", arg)
		}
		more, err := a.parts(arg+"."+e.name, e)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// multipart returns a multipart body, and sets Content-Type.
func (a *assembly) multipart(arg string, m *openapi.MediaType, v gjson.Result) ([]byte, error) {
	parts, err := a.allParts(arg, m, v)
	if err != nil {
		return nil, err
	}
	// The content determines the boundary, so that equal calls make equal requests.
	sum := sha256.New()
	for _, p := range parts {
		_, _ = sum.Write(p.data)
		_, _ = sum.Write([]byte{0})
	}
	boundary := hex.EncodeToString(sum.Sum(nil)[:16])
	for contain(parts, boundary) {
		next := sha256.Sum256([]byte(boundary))
		boundary = hex.EncodeToString(next[:16])
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, err
	}
	for _, p := range parts {
		out, err := w.CreatePart(p.header)
		if err != nil {
			return nil, err
		}
		if _, err := out.Write(p.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	t := httpio.BaseType(m.Type)
	if t == "multipart/*" {
		t = "multipart/form-data"
	}
	a.header.Set("Content-Type", t+"; boundary="+boundary)
	return b.Bytes(), nil
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

func contain(parts []part, boundary string) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return bytes.Contains(p.data, []byte(boundary)) })
}

// part is a part of a multipart body.
type part struct {
	header textproto.MIMEHeader
	data   []byte
}

// parts returns the parts of a field: one, or one for each item of an array.
func (a *assembly) parts(arg string, e entry) ([]part, error) {
	f := e.field
	if f == nil {
		f = &openapi.Field{}
	}
	if e.value.IsArray() && !httpio.IsJSON(f.ContentType) {
		if joined := f.CollectionFormat; joined != "" && joined != "multi" || f.Styled && !f.Explode && f.Style != "deepObject" {
			s := styled{
				arg:        arg,
				name:       e.name,
				value:      e.value,
				style:      f.Style,
				collection: joined,
				keep:       everything,
			}
			text, err := s.list(cmp.Or(separators[joined], separators[f.Style], ","), false)
			p, _ := a.part(arg, e.name, f, gjson.Result{Type: gjson.String, Str: text})
			return []part{p}, err
		}
		var out []part
		var err error
		e.value.ForEach(func(_, one gjson.Result) bool {
			if one.Type == gjson.Null {
				return true
			}
			var p part
			p, err = a.part(arg, e.name, f, one)
			out = append(out, p)
			return err == nil
		})
		return out, err
	}
	if f.Styled && e.value.IsObject() {
		s := styled{
			arg:     arg,
			name:    e.name,
			value:   e.value,
			style:   f.Style,
			explode: f.Explode,
			keep:    everything,
		}
		if s.style == "deepObject" || s.explode {
			return a.spread(&s, f)
		}
		text, err := s.list(",", false)
		p, _ := a.part(arg, e.name, f, gjson.Result{Type: gjson.String, Str: text})
		return []part{p}, err
	}
	p, err := a.part(arg, e.name, f, e.value)
	return []part{p}, err
}

// spread returns a part for each member of an object.
func (a *assembly) spread(s *styled, f *openapi.Field) ([]part, error) {
	var out []part
	var err error
	s.value.ForEach(func(k, one gjson.Result) bool {
		name := k.String()
		if s.style == "deepObject" {
			name = s.name + "[" + name + "]"
		}
		if strings.ContainsFunc(name, isControl) {
			err = Refuse("%s: a name has a line break or another control character", s.arg)
			return false
		}
		for _, other := range a.tool.Body.Fields {
			if other != f && other.Name == name {
				err = Refuse("%s: must not have a member called %s, as another field is", s.arg, name)
				return false
			}
		}
		var p part
		p, err = a.part(s.arg, name, &openapi.Field{Type: f.Type}, one)
		out = append(out, p)
		return err == nil
	})
	return out, err
}

// part returns one part: a file, JSON for an object or an array, or text.
func (a *assembly) part(arg, name string, f *openapi.Field, v gjson.Result) (part, error) {
	p := part{header: textproto.MIMEHeader{}}
	if f.File {
		one, err := a.file(arg, v)
		if err != nil {
			return p, err
		}
		one.Name = cmp.Or(one.Name, name)
		p.data = one.Data
		p.header.Set("Content-Disposition", multipart.FileContentDisposition(name, one.Name))
		p.header.Set("Content-Type", one.typeAmong(f.ContentType))
		partHeaders(p.header, f)
		return p, nil
	}
	p.header.Set("Content-Disposition", `form-data; name="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name)+`"`)
	contentType := firstConcrete(f.ContentType)
	switch {
	case v.Type == gjson.JSON:
		contentType = cmp.Or(contentType, httpio.JSON)
		p.data = rawjson.Compact([]byte(v.Raw))
	case httpio.IsJSON(contentType):
		p.data = []byte(v.Raw)
		if v.Raw == "" { // parts has joined the items of an array
			p.data = rawjson.AppendString(nil, v.Str)
		}
	default:
		t, err := text(arg, v, f.Type == "integer")
		if err != nil {
			return p, err
		}
		p.data = []byte(t)
	}
	if contentType != "" {
		p.header.Set("Content-Type", contentType)
	}
	partHeaders(p.header, f)
	return p, nil
}

// partHeaders sets the headers that the document declares for a part.
func partHeaders(h textproto.MIMEHeader, f *openapi.Field) {
	for _, p := range f.Headers {
		name := textproto.CanonicalMIMEHeaderKey(p.Name)
		own := name == "Content-Disposition" || name == "Content-Type" || name == "Content-Length" || name == "Content-Transfer-Encoding"
		if p.Value != "" && !own && httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(p.Value) {
			h.Set(name, p.Value)
		}
	}
}

// firstConcrete returns the first media type without a wildcard in a list with commas, or "".
func firstConcrete(types string) string {
	for t := range strings.SplitSeq(types, ",") {
		if t = strings.TrimSpace(t); t != "" && !strings.Contains(t, "*") && httpio.Sendable(t) {
			return t
		}
	}
	return ""
}
