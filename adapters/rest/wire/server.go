package wire

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
)

// server returns the address that the paths of an operation are below: the
// configured one, or the first that the operation, its path or the document
// names.
func server(doc *openapi.Document, op *openapi.Operation, o *Options) (*url.URL, error) {
	if o.BaseURL != "" {
		return base(o.BaseURL)
	}
	var servers []openapi.Server
	if op != nil {
		servers = op.Servers
	}
	if len(servers) == 0 && doc != nil {
		servers = doc.Servers
	}
	if len(servers) == 0 {
		return nil, errors.New("no server is named: set base_url")
	}
	text, err := expand(servers[0], o.Variables)
	if err != nil {
		return nil, err
	}
	ref, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the server's address is not a URL: set base_url")
	}
	if !ref.IsAbs() {
		at, err := url.Parse(doc.Location)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" {
			return nil, fmt.Errorf("the server %q is relative, and the document was not read from a URL: set base_url", text)
		}
		ref = at.ResolveReference(ref)
	}
	return base(ref.String())
}

// expand puts the values of variables into a server's address.
func expand(s openapi.Server, values map[string]string) (string, error) {
	text := s.URL
	for _, v := range s.Variables {
		value := v.Default
		if own, ok := values[v.Name]; ok {
			value = own
		}
		if len(v.Enum) > 0 && !slices.Contains(v.Enum, value) {
			return "", fmt.Errorf("the server's variable %s must be one of %s", v.Name, strings.Join(v.Enum, ", "))
		}
		text = strings.ReplaceAll(text, "{"+v.Name+"}", value)
	}
	if i := strings.IndexByte(text, '{'); i >= 0 {
		return "", fmt.Errorf("the server's address has a variable that the document does not explain: %s", text[i:])
	}
	return text, nil
}

// base parses an address that paths are put behind.
func base(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the server's address must be one such as https://api.example.com/v1")
	case u.User != nil:
		return nil, errors.New("the server's address must not hold a password: configure credentials")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// origins are those that credentials may go to.
type origins []*url.URL

func (o origins) has(u *url.URL) bool {
	return slices.ContainsFunc(o, func(one *url.URL) bool { return httpclient.SameOrigin(one, u) })
}
