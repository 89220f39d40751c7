package wire

import (
	"encoding/base64"
	"errors"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// file is a file that an argument holds.
type file struct {
	data     []byte
	name     string
	mimeType string // "" when the argument does not say
}

// file reads the forms that a file may have: {data: base64, filename?, type?},
// {text: …}, a string with a data: URI or the address of a resource, or else a
// string that is the text.
func (a *assembly) file(arg string, v gjson.Result) (*file, error) {
	f := &file{}
	switch {
	case v.Type == gjson.String && strings.HasPrefix(v.Str, "data:"):
		if err := f.uri(arg, v.Str); err != nil {
			return nil, err
		}
	case v.Type == gjson.String && address.MatchString(v.Str):
		var err error
		if f, err = a.addressed(arg, v.Str); err != nil {
			return nil, err
		}
	case v.Type == gjson.String:
		f.data, f.mimeType = []byte(v.Str), ""
	case v.IsObject():
		if err := f.object(arg, v); err != nil {
			return nil, err
		}
	default:
		return nil, refuse("%s: a file is {\"data\": base64}, {\"text\": …} or a data: URI", arg)
	}
	if len(f.data) > a.maxFile {
		return nil, refuse("%s: the file has %d bytes, and %d are allowed", arg, len(f.data), a.maxFile)
	}
	if f.mimeType != "" && !sendable(f.mimeType) {
		return nil, refuse("%s: %.60q is not a media type", arg, f.mimeType)
	}
	for _, c := range f.name {
		if c < ' ' || c == 0x7f {
			return nil, refuse("%s: the filename has a line break or another control character", arg)
		}
	}
	if f.name != "" {
		f.name = path.Base(strings.ReplaceAll(f.name, `\`, "/"))
	}
	return f, nil
}

// address is what looks like that of a file that is elsewhere.
var address = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://\S+$`)

// maxFetched is how many files of one call may be elsewhere.
const maxFetched = 8

// addressed reads the file at an address. Only resources of this server have
// such: models name addresses, and nothing is fetched for that.
func (a *assembly) addressed(arg, uri string) (*file, error) {
	switch {
	case a.fetch == nil || !strings.HasPrefix(uri, "rest://"):
		return nil, refuse("%s: nothing is fetched from addresses such as %.60q: give the file itself as {\"data\": base64} or {\"text\": …}; if the address is the text, {\"text\": …} too", arg, uri)
	case a.fetched == maxFetched:
		return nil, refuse("%s: more than %d files are given by their addresses, which is as many as are allowed", arg, maxFetched)
	}
	a.fetched++
	f, err := a.fetch(uri)
	if known, ok := errors.AsType[Refusal](err); ok {
		return nil, refuse("%s: %.200q cannot be read: %s", arg, uri, known)
	}
	if err != nil {
		return nil, err
	}
	// What a client sends itself counts in the size of its message. These are a
	// few words there, however large they are.
	if a.read += len(f.data); a.read > a.maxFile && a.fetched > 1 {
		return nil, refuse("%s: the files that are given by their addresses have more than %d bytes together, which is as much as is allowed", arg, a.maxFile)
	}
	return f, nil
}

func (f *file) object(arg string, v gjson.Result) error {
	member := map[string]gjson.Result{}
	v.ForEach(func(k, one gjson.Result) bool {
		member[k.String()] = one
		return true
	})
	f.name, f.mimeType = member["filename"].String(), member["type"].String()
	data, text := member["data"], member["text"]
	switch {
	case data.Type == gjson.String && text.Type == gjson.String:
		return refuse("%s: a file has data or text, not both", arg)
	case text.Type == gjson.String:
		f.data = []byte(text.Str)
		return nil
	case data.Type == gjson.String && strings.HasPrefix(data.Str, "data:"):
		named := f.mimeType
		err := f.uri(arg, data.Str)
		if named != "" {
			f.mimeType = named
		}
		return err
	case data.Type == gjson.String:
		return f.base64(arg, data.Str)
	}
	return refuse("%s: a file is {\"data\": base64}, {\"text\": …} or a data: URI", arg)
}

// base64 decodes either alphabet, with padding or without, over several lines
// or one.
func (f *file) base64(arg, s string) error {
	s = strings.NewReplacer("\r", "", "\n", "", " ", "", "\t", "", "-", "+", "_", "/").Replace(s)
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return refuse("%s: the data of the file is not base64 (for plain text use \"text\")", arg)
	}
	f.data = data
	return nil
}

// uri reads a data: URI (RFC 2397).
func (f *file) uri(arg, s string) error {
	head, data, ok := strings.Cut(strings.TrimPrefix(s, "data:"), ",")
	if !ok {
		return refuse("%s: the data: URI has no comma", arg)
	}
	isBase64 := false
	if i := strings.LastIndexByte(head, ';'); i >= 0 && strings.EqualFold(strings.TrimSpace(head[i+1:]), "base64") {
		head, isBase64 = head[:i], true
	}
	if f.mimeType = head; strings.HasPrefix(head, ";") {
		f.mimeType = "text/plain" + head
	}
	plain, err := url.PathUnescape(data)
	if err != nil {
		return refuse("%s: the data: URI is not encoded rightly", arg)
	}
	if isBase64 {
		return f.base64(arg, plain)
	}
	f.data = []byte(plain)
	return nil
}

// typeAmong returns the type to send, given those that are allowed, with commas
// between them.
func (f *file) typeAmong(allowed string) string {
	first := ""
	for t := range strings.SplitSeq(allowed, ",") {
		t = strings.TrimSpace(t)
		group, wild := strings.CutSuffix(baseType(t), "*")
		switch {
		case t == "" || !wild && !sendable(t):
		case wild && f.mimeType != "" && (group == "*/" || strings.HasPrefix(baseType(f.mimeType), group)):
			return f.mimeType
		case !wild && f.mimeType != "" && baseType(t) == baseType(f.mimeType):
			return f.mimeType
		case !wild && first == "":
			first = t
		}
	}
	switch {
	case first == anyBytes && f.mimeType != "":
		return f.mimeType // bytes of any kind, and we know which
	case first != "":
		return first
	case f.mimeType != "":
		return f.mimeType
	}
	return anyBytes
}
