package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// online requests the metadata and the keys of each issuer, and prints faults and remarks. It also prints the addresses
// that tokens must have in aud. If an issuer is unusable, online returns an error.
func online(ctx context.Context, w io.Writer, c *config.Config) error {
	if len(c.OAuth) == 0 {
		fmt.Fprintln(w, "there is no issuer to ask: the file has no oauth")
		return nil
	}
	bad := 0
	for i := range c.OAuth {
		o := &c.OAuth[i]
		fmt.Fprintln(w, "issuer", sanitize.Text(o.Issuer))
		faults, remarks := issuer(ctx, o, c.Access)
		for _, line := range faults {
			fmt.Fprintln(w, "  fault:", sanitize.Text(line))
		}
		for _, line := range remarks {
			fmt.Fprintln(w, "  "+sanitize.Text(line))
		}
		if o.Front != nil {
			fmt.Fprintln(w, "  the bridge stands in for it: register the bridge there, with the redirect URI", front.Callback(c.PublicURL+c.BasePath))
		}
		bad += min(len(faults), 1)
	}
	if c.PublicURL == "" {
		fmt.Fprintln(w, "without public_url, tokens are valid only for the local address of the bridge")
	} else {
		fmt.Fprintln(w, "tokens must be for one of these addresses (aud); the second address tells clients the issuers")
		root := c.PublicURL + c.BasePath
		const own = "/.well-known/oauth-protected-resource"
		fmt.Fprintf(w, "  %s\t%s\n", root, root+own)
		for _, name := range append([]string{""}, names(c)...) {
			for _, transport := range []string{"/mcp", "/sse"} {
				path := transport
				if name != "" {
					path = "/" + name + transport
				}
				fmt.Fprintf(w, "  %s\t%s\n", root+path, root+own+path)
			}
		}
	}
	if bad > 0 {
		return exit.With(exit.Failure, fmt.Errorf("tokens of %s cannot be checked", count(bad, "issuer")))
	}
	return nil
}

func names(c *config.Config) (all []string) {
	for i := range c.Servers {
		all = append(all, c.Servers[i].Name)
	}
	return all
}

// issuer requests the metadata and the keys of one issuer. If there are faults, the issuer's tokens cannot be checked.
func issuer(ctx context.Context, o *config.OAuth, rules []config.Access) (faults, remarks []string) {
	transport, err := o.Reach()
	if err != nil {
		return []string{"ca_file: " + err.Error()}, nil
	}
	set := jwks.New(jwks.Options{
		Issuer: o.Issuer,
		From:   o.JWKS,
		Client: jwks.Client(transport),
		Log:    slog.New(slog.DiscardHandler),
	})
	asks := o.Introspection != (config.Introspection{})
	if !asks || !o.Introspection.Always {
		usable, skipped, err := set.Try(ctx)
		if err != nil {
			faults = append(faults, err.Error())
		} else {
			remarks = append(remarks, count(usable, "key")+" can be used")
		}
		for _, one := range skipped {
			remarks = append(remarks, "not used: "+one.Error())
		}
	}
	i, err := set.Metadata(ctx)
	if err != nil {
		if o.JWKS == "" && (!asks || !o.Introspection.Always) {
			return faults, remarks // the fault of the keys includes this fault
		}
		if asks && o.Introspection.URL == "" {
			return append(faults, err.Error()), remarks
		}
		return faults, append(remarks, err.Error())
	}
	if asks && o.Introspection.URL == "" {
		if i.Introspection == "" {
			faults = append(faults, "its metadata names no introspection_endpoint: set url under introspection")
		} else if err := jwks.CheckAddress(i.Introspection); err != nil {
			faults = append(faults, "introspection_endpoint "+err.Error())
		} else {
			remarks = append(remarks, "opaque tokens are asked about at "+i.Introspection)
		}
	}
	var unlisted []string
	for _, name := range o.RuleClaims(rules) {
		object, _, _ := strings.Cut(name, ".")
		if len(i.Claims) > 0 && !slices.Contains(i.Claims, name) && !slices.Contains(i.Claims, object) {
			unlisted = append(unlisted, name)
		}
	}
	if len(unlisted) > 0 {
		remarks = append(remarks, "its claims_supported does not have "+strings.Join(unlisted, " ")+", which access rules name: make sure that its tokens have them")
	}
	switch {
	case o.Front != nil: // clients use the bridge instead
		return faults, remarks
	case i.Documents:
		remarks = append(remarks, "clients whose id is a URL (CIMD) need no registration")
	case i.Registration != "":
		remarks = append(remarks, "clients register by themselves at "+i.Registration)
	default:
		remarks = append(remarks, "clients cannot register by themselves (its metadata has neither registration_endpoint nor client_id_metadata_document_supported): register each there, and give it the id")
	}
	if !slices.Contains(i.Challenges, "S256") {
		remarks = append(remarks, "its metadata does not have S256 in code_challenge_methods_supported: many clients refuse to sign in then")
	}
	var unheard []string
	for _, scope := range o.Scopes {
		if len(i.Scopes) > 0 && !slices.Contains(i.Scopes, scope) {
			unheard = append(unheard, scope)
		}
	}
	if len(unheard) > 0 {
		remarks = append(remarks, "its scopes_supported does not have "+strings.Join(unheard, " ")+": a client that asks for it may be refused")
	}
	return faults, remarks
}
