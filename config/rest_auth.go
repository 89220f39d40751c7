package config

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// inDefault are the keys of a single credential whose value is a mapping. Any other key with a mapping is the name of a
// security scheme.
var inDefault = []string{"client", "aws", "hook"}

// awsFromEnvironment fills in missing values from the variables that AWS's own tools use. If values are still missing,
// it returns the fault.
func (d *decoder) awsFromEnvironment(a *rest.AWS) string {
	from := func(name string) string {
		value, _ := d.Env(name)
		return value
	}
	if a.AccessKey == "" && a.SecretKey == "" && a.SessionToken == "" {
		a.AccessKey, a.SecretKey, a.SessionToken = from("AWS_ACCESS_KEY_ID"), from("AWS_SECRET_ACCESS_KEY"), from("AWS_SESSION_TOKEN")
		for _, secret := range []string{a.SecretKey, a.SessionToken} {
			if secret != "" {
				d.Secrets[secret] = "***"
			}
		}
	}
	a.Region = cmp.Or(a.Region, from("AWS_REGION"), from("AWS_DEFAULT_REGION"))
	switch {
	case a.Service == "":
		return "needs service in aws, such as execute-api"
	case a.Region == "":
		return "needs region in aws, or the variable AWS_REGION"
	case a.AccessKey == "" || a.SecretKey == "":
		return "needs access_key and secret_key in aws, or the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	}
	return ""
}

// credential reads one credential. If it is faulty, credential adds a fault and reports false.
func (d *decoder) credential(s *strict.Slot, n *yaml.Node) (*rest.Credential, bool) {
	var c rest.Credential
	if _, ok := d.whole(s, n, &c); !ok {
		return nil, false
	}
	if len(c.Bearer) > 7 && strings.EqualFold(c.Bearer[:7], "Bearer ") { // a token has no space
		c.Bearer = strings.TrimSpace(c.Bearer[7:])
		d.Warn(s.Line, "%s%s: bearer begins with Bearer, which the bridge adds itself: write the token alone", s.Section.Where, s.Label)
	}
	kinds, places := 0, 0
	for _, set := range []bool{c.Key != "", c.User != "" || c.Password != "", c.Bearer != "", c.Client != nil || c.Login, c.AWS != nil, c.Hook != nil} {
		if set {
			kinds++
		}
	}
	for _, place := range []string{c.Header, c.Query, c.Cookie} {
		if place != "" {
			places++
		}
	}
	wrong := ""
	switch {
	case kinds != 1:
		wrong = "needs one of value, bearer, user and password, client, login, aws, and hook"
	case places > 1 || places > 0 && c.Key == "":
		wrong = "needs one of header, query and cookie beside value, and with nothing else"
	case c.AWS != nil:
		wrong = d.awsFromEnvironment(c.AWS)
	case c.Hook != nil:
		wrong = hookFault(c.Hook)
	}
	if wrong == "" && c.Exchange != "" && c.Client == nil {
		wrong = "needs a client with exchange"
	}
	if err := c.CheckTokens(); wrong == "" && err != nil {
		wrong, _, _ = strings.Cut(err.Error(), "\n")
	}
	if wrong != "" {
		d.Fault(s.Line, "%s%s: %s", s.Section.Where, s.Label, wrong)
		return nil, false
	}
	return &c, true
}

// auth reads credentials: one for all requests, or credentials by the names of security schemes.
func (d *decoder) auth(s *strict.Slot, n *yaml.Node, into *rest.Auth) bool {
	list, ok := d.Entries(s.Section.Where+s.Label+": ", n)
	if !ok {
		return d.Mistyped(s, n, "a mapping such as { bearer: ${TOKEN} } or { SCHEME: { value: ${KEY} } }")
	}
	schemes := len(list) > 0
	for _, e := range list {
		schemes = schemes && strict.Kind(e.Value) == strict.Map && (!slices.Contains(inDefault, e.Key) || len(list) > 1)
	}
	if !schemes {
		c, ok := d.credential(s, n)
		into.Default = c
		return ok
	}
	into.Schemes = map[string]rest.Credential{}
	for _, e := range list {
		at := &strict.Slot{
			Section: s.Section,
			Label:   s.Label + ": " + e.Key,
			Line:    e.Line,
		}
		c, good := d.credential(at, e.Value)
		if ok = good && ok; good {
			into.Schemes[e.Key] = *c
		}
	}
	return ok
}
