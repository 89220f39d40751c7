package flags

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Reach holds the flags of all commands that reach a bridge or a server over HTTP: what to send, and whom to trust.
type Reach struct {
	Headers []string // as the user wrote them
	CAFile  string

	tokenEnv string
}

// Add adds the flags. token describes the value of --token-env; without it, the command has no such flag.
func (r *Reach) Add(f *pflag.FlagSet, token string) {
	f.StringArrayVarP(&r.Headers, "header", "H", nil, "header to send, 'NAME: VALUE'; ${NAME} is that variable's value (repeatable)")
	f.StringVar(&r.CAFile, "ca-file", "", "certificates (PEM) to trust as issuers, besides the system's")
	if token != "" {
		f.StringVar(&r.tokenEnv, "token-env", "", "variable with "+token)
	}
}

// Unexpanded returns warnings about headers that name a variable without braces. It shows no values, which may be
// secrets.
func (r *Reach) Unexpanded() (warnings []string) {
	for _, f := range r.Headers {
		name, value, _ := strings.Cut(f, ":")
		if _, variable := config.OfShell(value); variable {
			warnings = append(warnings, fmt.Sprintf("--header %s has a $NAME without braces, which is passed as it is: to take it from the environment, write ${NAME}", name))
		}
	}
	return warnings
}

// Values returns the headers that the flags name, after a look at the file of --ca-file. secrets are the values from the
// environment. Errors do not show values.
func (r *Reach) Values() (headers map[string]string, secrets []string, err error) {
	headers = map[string]string{}
	text := strict.Decoder{
		Env:     os.LookupEnv,
		Program: "mcp-bridge",
		Secrets: map[string]string{},
	} // as in a configuration file
	for _, f := range r.Headers {
		name, value, ok := strings.Cut(f, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, nil, exit.Usagef("--header needs 'NAME: VALUE', such as 'Authorization: Bearer ${TOKEN}'")
		}
		if _, twice := headers[name]; twice {
			return nil, nil, exit.Usagef("--header %s is given twice", name)
		}
		if bare := bareReference.FindStringSubmatch(value); bare != nil && os.Getenv(bare[1]) != "" && !strings.Contains(value, "${") {
			return nil, nil, exit.Usagef("--header %s: $%s would be sent as it is: write ${%[2]s}", name, bare[1])
		}
		value, _, err := text.Expand(strings.TrimSpace(value))
		if err != nil {
			return nil, nil, exit.Usagef("--header %s: %w", name, err)
		}
		headers[name] = value
	}
	if _, err := (&remote.Config{CAFile: r.CAFile}).Secure(); err != nil {
		return nil, nil, exit.Usagef("--ca-file: %s", strings.TrimPrefix(err.Error(), "ca_file: "))
	}
	if r.tokenEnv != "" {
		key := os.Getenv(r.tokenEnv)
		if key == "" {
			return nil, nil, Unset(r.tokenEnv)
		}
		if _, twice := headers["Authorization"]; twice {
			return nil, nil, exit.Usagef("--token-env and --header both set Authorization: leave one out")
		}
		headers["Authorization"] = "Bearer " + key
		text.Secrets[key] = r.tokenEnv
	}
	return headers, slices.Sorted(maps.Keys(text.Secrets)), nil
}

// bareReference matches a reference to a variable as shells write it.
var bareReference = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)

// Unset returns the error about the variable that --token-env names. If the name may be a key, the error does not show
// the name.
func Unset(name string) error {
	key := len(name) >= 16 && strings.ContainsAny(name, "0123456789") && !strings.Contains(name, "_") // such as hexadecimal digits
	if key || !strict.IsVariable(name) || sanitize.MayBeSecret(name) || sanitize.LooksSecret("", name) {
		return exit.Usagef("--token-env takes the name of a variable, and not the key: put the key in a variable, and name the variable")
	}
	return exit.Usagef("--token-env %s: the variable is not set: set it to the key", name)
}
