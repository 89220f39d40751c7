package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/login"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// asking returns a function that shows the user where to sign in, or nil if there is neither a terminal nor a browser.
func asking(stderr io.Writer, terminal bool) func(server, address string) {
	browser := login.Browser()
	if browser == nil && !terminal {
		return nil
	}
	return func(server, address string) { show(stderr, browser, server, address) }
}

func show(stderr io.Writer, browser []string, server, address string) {
	if u, err := url.Parse(server); err == nil {
		server = u.Host
	}
	what := "open this address in a browser on this machine:"
	if login.Show(browser, address) == nil {
		what = "a browser is being opened. If not, open"
	}
	fmt.Fprintf(stderr, "mcp-bridge: you must sign in at %s: %s\n  %s\n", sanitize.Text(server), what, sanitize.Text(address))
}

// showCode shows the user the address and the code for a sign-in on another device.
func showCode(stderr io.Writer, server, address, code, both string) {
	if u, err := url.Parse(server); err == nil {
		server = u.Host
	}
	fmt.Fprintf(stderr, "mcp-bridge: to sign in at %s, open this address on any device:\n  %s\nand enter the code:\n  %s\n", sanitize.Text(server), sanitize.Text(address), sanitize.Text(code))
	if both != "" {
		fmt.Fprintf(stderr, "or open this one, which has the code:\n  %s\n", sanitize.Text(both))
	}
}

// deviceOn returns showCode for stderr.
func deviceOn(stderr io.Writer) func(server, address, code, both string) {
	return func(server, address, code, both string) { showCode(stderr, server, address, code, both) }
}

// typed returns the lines of a terminal. Its goroutine cannot be stopped: the read ends with the process.
func typed(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// askOf sets ask for all servers that need a sign-in. The user is their only caller.
func askOf(c *config.Config, ask func(server, address string)) {
	for i := range c.Servers {
		if r := c.Servers[i].Remote(); r != nil && r.OAuth != nil && r.OAuth.Login {
			r.OAuth.Ask, r.OAuth.Own = ask, true
		}
	}
}

// signInTarget returns the configuration of the server that the command line names.
func signInTarget(target, file string, reach flags.Reach, f *flags.SignIn) (*remote.Config, error) {
	if flags.IsURL(target) {
		s, err := (&flags.Remote{Reach: reach}).Server(target, config.ShareSession)
		if err != nil {
			return nil, err
		}
		if s.HTTP.OAuth, err = f.Settings(); err != nil {
			return nil, err
		}
		if err := s.HTTP.Validate(); err != nil {
			return nil, exit.Usagef("%s: %w", target, err)
		}
		return s.HTTP, nil
	}
	c, err := flags.Load(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && file == flags.DefaultFile && flags.Remotely(target) != "":
		return nil, exit.Usagef("%q is not a URL: %s", target, flags.Remotely(target))
	case errors.Is(err, fs.ErrNotExist) && file == flags.DefaultFile:
		return nil, exit.Usagef("unknown target %q: there is no %s here. Give a URL, or a configuration file with -c FILE", target, file)
	case err != nil:
		return nil, err
	}
	var names []string
	for _, s := range c.Servers {
		c := s.Remote()
		if s.Rest != nil {
			c = s.Rest.SignIn()
		}
		signs := c != nil && c.OAuth != nil && c.OAuth.Login
		switch {
		case s.Name == target && signs:
			return c, nil
		case s.Name == target:
			return nil, exit.Usagef("%s: server %s has no login: true in its oauth, or in the auth of its API", file, target)
		case signs:
			names = append(names, s.Name)
		}
	}
	return nil, exit.Usagef("%s has no server %q: %s", file, target, similar.Hint(target, names, "it has none with login: true in its oauth, or in the auth of an API"))
}

func newLogin(l *flags.Log, stdout, stderr io.Writer) *cobra.Command {
	var file string
	var s flags.SignIn
	var reach flags.Reach
	var device bool
	cmd := &cobra.Command{
		Use:   "login [flags] URL|SERVER",
		Short: "Sign in to a server, in a browser",
		Long: `login signs in at an MCP server that wants a token (OAuth 2.1). It opens the sign-in
page in a browser, and keeps the tokens for you. connect, run, serve and the other
commands then use them, and renew them when needed. SERVER is the name of a server in
the configuration file.

login also prints the address of the page. At the end, the browser opens an address of
this machine. If your browser is on another machine, that page does not load: copy its
address, and paste it on this terminal. With --device, you sign in on any device with a
code, if the authorization server supports that. $BROWSER is the command that opens
pages.

The tokens are in files that only you can read, sealed with a key in the keychain of
the system if there is one. MCP_BRIDGE_LOGINS=file keeps them in clear, and
MCP_BRIDGE_LOGINS=keychain fails without a keychain.`,
		Example: `  mcp-bridge login https://tools.example.com/mcp
  mcp-bridge login notes -c bridge.yaml
  mcp-bridge login https://tools.example.com/mcp --scope read --scope write
  mcp-bridge login https://tools.example.com/mcp --device
  mcp-bridge login https://tools.example.com/mcp --client-id my-client`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usagef("name the URL of a server, or a server of the file: mcp-bridge login https://tools.example.com/mcp")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := l.Logger(stderr)
			if err != nil {
				return err
			}
			if !flags.IsURL(args[0]) {
				if err := flags.Useless(cmd.Flags(), "a URL", append([]string{"header", "ca-file"}, flags.SignInNames...)...); err != nil {
					return err
				}
			}
			c, err := signInTarget(args[0], file, reach, &s)
			if err != nil {
				return err
			}
			store, err := login.OpenOwn(log)
			if err != nil {
				return err
			}
			how := login.Options{Store: store}
			if on, _ := terminal.Is(os.Stdin); on && !device {
				how.Typed = typed(os.Stdin)
			}
			how.Ask = func(address string) {
				if show(stderr, login.Browser(), c.URL, address); how.Typed != nil {
					fmt.Fprintln(stderr, "if the browser is on another machine, paste the address of its last page here:")
				}
			}
			if device {
				how.Device = func(address, code, both string) { showCode(stderr, c.URL, address, code, both) }
			}
			p, err := person(c, how, log)
			if err != nil {
				return err
			}
			defer p.Close()
			got, err := p.SignIn(cmd.Context())
			if got != nil && err != nil {
				return exit.With(exit.Server, err)
			}
			if errors.Is(err, login.ErrUnreachable) && cmd.Context().Err() == nil {
				return exit.With(exit.Server, err)
			} else if err != nil {
				return err
			}
			scopes := ""
			if len(got.Granted) > 0 {
				scopes = "; scopes: " + strings.Join(got.Granted, " ")
			}
			_, err = fmt.Fprintf(stdout, "signed in at %s for %s%s%s\n", sanitize.Text(got.Issuer.Name), sanitize.Text(got.Server), sanitize.Text(scopes), ends(got))
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	cmd.Flags().BoolVar(&device, "device", false, "sign in on any device: open an address there and enter a code")
	s.AddAlways(cmd.Flags())
	reach.Add(cmd.Flags(), "")
	return cmd
}

// ends describes when a login expires.
func ends(l *login.Login) string {
	switch {
	case l.Until.IsZero():
		return ""
	case l.Refresh != "":
		return "; until " + l.Until.Format("15:04") + ", then renewed by itself"
	}
	return "; until " + l.Until.Format(time.DateTime)
}

// person returns a login.Person for a server. how holds the person's options.
func person(c *remote.Config, how login.Options, log *slog.Logger) (*login.Person, error) {
	at, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("url: not a URL")
	}
	way, err := remote.Outward(*c, true, c.OAuth.Trusted()...)
	if err != nil {
		return nil, err
	}
	how.Options = oauth.Options{
		Settings:  *c.OAuth,
		Server:    at,
		Transport: way,
		Log:       log,
	}
	return login.New(how), nil
}

type kept struct {
	key          string
	*login.Login // nil if the login cannot be read
}

// loginsFor returns the logins for a server, or all logins.
func loginsFor(store *login.Store, server string, stderr io.Writer) (all []kept, err error) {
	keys, err := store.Keys()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		l, err := store.Read(key)
		if err != nil {
			fmt.Fprintln(stderr, "mcp-bridge:", sanitize.Text(err.Error()))
			if server == "" {
				all = append(all, kept{key, nil})
			}
			continue
		}
		if l != nil && (server == "" || l.Server == server) {
			all = append(all, kept{key, l})
		}
	}
	return all, nil
}

// plainURL returns the URL of a target without the query, as logins name it.
func plainURL(target, file string) (string, *remote.Config, error) {
	c, err := signInTarget(target, file, flags.Reach{}, &flags.SignIn{})
	if err != nil {
		return "", nil, err
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", nil, exit.Usagef("%s is not a URL", target)
	}
	u.RawQuery, u.Fragment, u.Scheme, u.Host = "", "", strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	return u.String(), c, nil
}

func newLogout(stdout, stderr io.Writer) *cobra.Command {
	var file string
	var all bool
	cmd := &cobra.Command{
		Use:   "logout [flags] [URL|SERVER]",
		Short: "Sign out of a server",
		Long: `logout removes the tokens that 'mcp-bridge login' has kept for a server, and asks the
authorization server to revoke them, if it supports that. It also forgets a sign-in
that has begun. With --all it also removes the key from the keychain.`,
		Example: `  mcp-bridge logout https://tools.example.com/mcp
  mcp-bridge logout notes -c bridge.yaml
  mcp-bridge logout --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return exit.Usagef("name a URL or a server of the file, or --all")
			}
			store, err := login.OpenOwn(slog.New(slog.DiscardHandler)) // this store writes no logins
			if err != nil {
				return err
			}
			server := ""
			c := &remote.Config{}
			if !all {
				if server, c, err = plainURL(args[0], file); err != nil {
					return err
				}
			}
			found, err := loginsFor(store, server, stderr)
			if err != nil {
				return err
			}
			var faults []error
			for _, k := range found {
				name := "a login that cannot be read"
				if k.Login != nil {
					name = sanitize.Text(k.Server)
				}
				if err := forget(cmd.Context(), store, k, c); err != nil {
					faults = append(faults, fmt.Errorf("%s: %s", name, sanitize.Text(err.Error())))
				} else if _, err := fmt.Fprintln(stdout, "signed out of "+name); err != nil {
					return err
				}
			}
			if all {
				if err := store.RemoveKey(); err != nil {
					faults = append(faults, err)
				}
			}
			begun, err := store.Abandon(server) // unfinished sign-ins
			switch {
			case err != nil:
				faults = append(faults, err)
			case begun > 0:
				if _, err := fmt.Fprintln(stdout, "forgot "+count(begun, "unfinished sign-in")); err != nil {
					return err
				}
			case len(found) == 0 && !all:
				return exit.With(exit.Failure, fmt.Errorf("there is no login for %s", server))
			}
			return errors.Join(faults...)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	cmd.Flags().BoolVar(&all, "all", false, "forget all sign-ins")
	return cmd
}

// forget signs out and deletes a login.
func forget(ctx context.Context, store *login.Store, k kept, c *remote.Config) error {
	at := *c
	if k.Login == nil {
		return login.SignOut(ctx, store, k.key, nil, nil) // without a request to the issuer
	}
	at.URL = k.Server
	var trusted []string
	if c.OAuth != nil {
		trusted = c.OAuth.Trusted()
	}
	way, err := remote.Outward(at, true, trusted...)
	if err != nil {
		return err
	}
	return login.SignOut(ctx, store, k.key, way, c.OAuth)
}

func newLogins(stdout, stderr io.Writer) *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "logins [flags] [URL|SERVER]",
		Short: "List your sign-ins",
		Long: `logins shows the sign-ins that 'mcp-bridge login' has kept: for which server, at
which authorization server, as which client, with which scopes, and until when. It
shows no token, and asks nobody.`,
		Example: `  mcp-bridge logins
  mcp-bridge logins https://tools.example.com/mcp`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := login.OpenOwn(slog.New(slog.DiscardHandler)) // this store writes no logins
			if err != nil {
				return err
			}
			server := ""
			if len(args) > 0 {
				if server, _, err = plainURL(args[0], file); err != nil {
					return err
				}
			}
			found, err := loginsFor(store, server, stderr)
			switch {
			case err != nil:
				return err
			case asJSON:
				return printLogins(stdout, found)
			case len(found) == 0 && server != "":
				return exit.With(exit.Failure, fmt.Errorf("you are not signed in at %s", server))
			case len(found) == 0:
				_, err := fmt.Fprintln(stdout, "you are not signed in at any server")
				return err
			}
			t := terminal.Table{Head: []string{"SERVER", "ISSUER", "CLIENT", "SCOPES", "STATE"}}
			for _, k := range found {
				if k.Login == nil {
					continue // the reason is on stderr
				}
				addRow(&t, k.Server, k.Issuer.Name, shortID(k.Client.ID), strings.Join(k.Granted, " "), state(k.Login, time.Now()))
			}
			_, err = io.WriteString(stdout, t.Format("", 0, nil))
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print them as one JSON document")
	return cmd
}

// printLogins prints logins as JSON, without tokens.
func printLogins(w io.Writer, found []kept) error {
	type entry struct {
		Server string    `json:"server"`
		Issuer string    `json:"issuer"`
		Client string    `json:"client"`
		Scopes []string  `json:"scopes,omitempty"`
		State  string    `json:"state"`
		Until  time.Time `json:"until,omitzero"` // the end of the access token
	}
	all := []entry{}
	for _, k := range found {
		if k.Login != nil {
			all = append(all, entry{k.Server, k.Issuer.Name, k.Client.ID, k.Granted, state(k.Login, time.Now()), k.Until})
		}
	}
	text, err := json.Marshal(map[string]any{"logins": all})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// shortID shortens the id of a client, which may contain a whole registration.
func shortID(id string) string {
	if len(id) <= 40 {
		return id
	}
	return strings.ToValidUTF8(id[:37], "") + "…"
}

// state describes the effect of a login's next use.
func state(l *login.Login, now time.Time) string {
	switch {
	case l.Refresh != "":
		return "renewed by itself"
	case l.Access != "" && l.Until.IsZero():
		return "good"
	case l.Access != "" && now.Before(l.Until):
		return "good until " + l.Until.Format(time.DateTime)
	}
	return "sign in again"
}
