package param

import (
	"encoding/base64"
	"errors"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/httpio"
)

// File is a file in an argument.
type File struct {
	Data []byte
	Name string
	Type string // empty if the argument names none
}

// file returns the file that an argument gives. An object is {data: base64, filename?, type?} or
// {text: …}. A string is a data: URI, the address of a resource, or else the text of the file.
func (a *assembly) file(arg string, v gjson.Result) (*File, error) {
	f := &File{}
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
		f.Data, f.Type = []byte(v.Str), ""
	case v.IsObject():
		if err := f.object(arg, v); err != nil {
			return nil, err
		}
	default:
		return nil, Refuse("%s: a file is {\"data\": base64}, {\"text\": …} or a data: URI", arg)
	}
	if len(f.Data) > a.o.MaxFile {
		return nil, Refuse("%s: the file has %d bytes, and %d are allowed", arg, len(f.Data), a.o.MaxFile)
	}
	if f.Type != "" && !httpio.Sendable(f.Type) {
		return nil, Refuse("%s: %.60q is not a media type", arg, f.Type)
	}
	for _, c := range f.Name {
		if c < ' ' || c == 0x7f {
			return nil, Refuse("%s: the filename has a line break or another control character", arg)
		}
	}
	if f.Name != "" {
		f.Name = path.Base(strings.ReplaceAll(f.Name, `\`, "/"))
	}
	return f, nil
}

// address matches URLs.
var address = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://\S+$`)

// maxFetched bounds the files of one call that have addresses.
const maxFetched = 8

// addressed reads the file at an address. Since models choose the addresses, only resources of this
// server are read.
func (a *assembly) addressed(arg, uri string) (*File, error) {
	switch {
	case a.o.Fetch == nil || !strings.HasPrefix(uri, "rest://"):
		return nil, Refuse("%s: the bridge fetches no files from addresses such as %.60q: give the file itself as {\"data\": base64} or {\"text\": …}; if the address is the text, use {\"text\": …}", arg, uri)
	case a.fetched == maxFetched:
		return nil, Refuse("%s: more than %d files have addresses, which is the limit", arg, maxFetched)
	}
	a.fetched++
	f, err := a.o.Fetch(uri)
	if known, ok := errors.AsType[Refusal](err); ok {
		return nil, Refuse("%s: %.200q cannot be read: %s", arg, uri, known)
	}
	if err != nil {
		return nil, err
	}
	// The limit of messages bounds files in a message, but not files at the addresses in a message.
	if a.read += len(f.Data); a.read > a.o.MaxFile && a.fetched > 1 {
		return nil, Refuse("%s: the files with addresses have more than %d bytes together, which is the limit", arg, a.o.MaxFile)
	}
	return f, nil
}

func (f *File) object(arg string, v gjson.Result) error {
	member := map[string]gjson.Result{}
	v.ForEach(func(k, one gjson.Result) bool {
		member[k.String()] = one
		return true
	})
	f.Name, f.Type = member["filename"].String(), member["type"].String()
	data, text := member["data"], member["text"]
	switch {
	case data.Type == gjson.String && text.Type == gjson.String:
		return Refuse("%s: a file has data or text, not both", arg)
	case text.Type == gjson.String:
		f.Data = []byte(text.Str)
		return nil
	case data.Type == gjson.String && strings.HasPrefix(data.Str, "data:"):
		named := f.Type
		err := f.uri(arg, data.Str)
		if named != "" {
			f.Type = named
		}
		return err
	case data.Type == gjson.String:
		return f.base64(arg, data.Str)
	}
	return Refuse("%s: a file is {\"data\": base64}, {\"text\": …} or a data: URI", arg)
}

// base64 decodes base64 in either alphabet, with or without padding and line breaks.
func (f *File) base64(arg, s string) error {
	s = strings.NewReplacer("\r", "", "\n", "", " ", "", "\t", "", "-", "+", "_", "/").Replace(s)
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return Refuse("%s: the data of the file is not base64 (for plain text use \"text\")", arg)
	}
	f.Data = data
	return nil
}

// uri decodes a data: URI (RFC 2397).
func (f *File) uri(arg, s string) error {
	head, data, ok := strings.Cut(strings.TrimPrefix(s, "data:"), ",")
	if !ok {
		return Refuse("%s: the data: URI has no comma", arg)
	}
	isBase64 := false
	if i := strings.LastIndexByte(head, ';'); i >= 0 && strings.EqualFold(strings.TrimSpace(head[i+1:]), "base64") {
		head, isBase64 = head[:i], true
	}
	if f.Type = head; strings.HasPrefix(head, ";") {
		f.Type = "text/plain" + head
	}
	plain, err := url.PathUnescape(data)
	if err != nil {
		return Refuse("%s: the data: URI is not percent-encoded correctly", arg)
	}
	if isBase64 {
		return f.base64(arg, plain)
	}
	f.Data = []byte(plain)
	return nil
}

// typeAmong returns the Content-Type of the file: the file's own type if that is in allowed, a list
// with commas, or else the first type in allowed without a wildcard.
func (f *File) typeAmong(allowed string) string {
	first := ""
	for t := range strings.SplitSeq(allowed, ",") {
		t = strings.TrimSpace(t)
		group, wild := strings.CutSuffix(httpio.BaseType(t), "*")
		switch {
		case t == "" || !wild && !httpio.Sendable(t):
		case wild && f.Type != "" && (group == "*/" || strings.HasPrefix(httpio.BaseType(f.Type), group)):
			return f.Type
		case !wild && f.Type != "" && httpio.BaseType(t) == httpio.BaseType(f.Type):
			return f.Type
		case !wild && first == "":
			first = t
		}
	}
	switch {
	case first == httpio.Bytes && f.Type != "":
		return f.Type // application/octet-stream allows any type
	case first != "":
		return first
	case f.Type != "":
		return f.Type
	}
	return httpio.Bytes
}
