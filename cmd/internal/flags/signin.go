package flags

import (
	"net/url"
	"os"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// SignIn holds the flags for a sign-in at a server with a URL.
type SignIn struct {
	clientID, secretEnv, document, issuer, callback, resource string
	scopes                                                    []string
	none, device                                              bool
}

// SignInNames lists the names of the flags of SignIn, without --device, which login also has for servers of a file.
var SignInNames = []string{"client-id", "client-secret-env", "client-metadata-url", "scope", "issuer", "resource", "callback", "no-login"}

// Add adds the flags for a command that signs in when a server requires it.
func (s *SignIn) Add(f *pflag.FlagSet) {
	s.AddAlways(f)
	f.BoolVar(&s.device, "device", false, "sign in on any device: open an address there and enter a code")
	f.BoolVar(&s.none, "no-login", false, "never sign in, and use no login of 'mcp-bridge login'")
}

// AddAlways adds the flags for a command that always signs in.
func (s *SignIn) AddAlways(f *pflag.FlagSet) {
	f.StringVar(&s.clientID, "client-id", "", "id of your client at the authorization server (default: the bridge registers itself)")
	f.StringVar(&s.secretEnv, "client-secret-env", "", "variable with the secret of --client-id; needs --issuer")
	f.StringVar(&s.document, "client-metadata-url", "", "client metadata document, if the authorization server accepts one as registration")
	f.StringArrayVar(&s.scopes, "scope", nil, "scope to request (default: those that the server names; repeatable)")
	f.StringVar(&s.issuer, "issuer", "", "authorization server (default: the one that the server names)")
	f.StringVar(&s.resource, "resource", "", "resource to request a token for (default: the one that the server names); off sends none")
	f.StringVar(&s.callback, "callback", "", "address on this machine to which the browser returns, such as http://localhost:7777/callback (default: any free port)")
}

// On enables sign-in at the server of c, unless c has an Authorization header or the flags forbid it. A token is never
// sent unencrypted to another machine. ask shows the user the address for the sign-in, and is nil if there is no user.
// With --device, device shows the address. own means that all callers are this user.
func (s *SignIn) On(c *remote.Config, ask func(server, address string), device func(server, address, code, both string), own bool) error {
	if s.none && s.device {
		return exit.Usagef("--device signs in, and --no-login never does: leave one out")
	}
	o, err := s.Settings()
	if err != nil || o == nil {
		return err
	}
	if _, own := c.Headers["Authorization"]; own {
		return nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme == "http" && !discovery.Loopback(u.Hostname()) {
		return nil
	}
	if s.device {
		ask, o.Device = nil, device
	}
	o.Ask, o.Own, o.Unasked, o.Command = ask, own, !s.set(), "mcp-bridge login URL" // not the URL itself, which may contain a key
	c.OAuth = o
	return nil
}

// set reports whether a flag for signing in is set.
func (s *SignIn) set() bool {
	return s.device || s.clientID+s.secretEnv+s.document+s.issuer+s.callback+s.resource != "" || len(s.scopes) > 0
}

// Settings returns the settings for signing in, or nil if the flags forbid it.
func (s *SignIn) Settings() (*oauth.Settings, error) {
	if s.none {
		return nil, nil
	}
	o := &oauth.Settings{
		Login:             true,
		Issuer:            s.issuer,
		Scopes:            s.scopes,
		Resource:          s.resource,
		ClientMetadataURL: s.document,
		RedirectURI:       s.callback,
		Private:           true, // the user of this machine named the server
	}
	switch {
	case s.clientID != "":
		o.Client = &oauth.Client{ID: s.clientID}
	case s.secretEnv != "":
		return nil, exit.Usagef("--client-secret-env needs --client-id")
	}
	if s.secretEnv != "" {
		if o.Client.Secret = os.Getenv(s.secretEnv); o.Client.Secret == "" {
			return nil, exit.Usagef("--client-secret-env %s: the variable is not set", s.secretEnv)
		}
		if s.issuer == "" {
			return nil, exit.Usagef("--client-secret-env needs an --issuer: a secret is shown only to an authorization server that you name")
		}
	}
	if err := o.Validate(); err != nil {
		return nil, exit.Usagef("signing in: %w", err)
	}
	return o, nil
}
