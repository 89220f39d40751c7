package sanitize

import (
	"regexp"
	"slices"
	"strings"
)

// secretNames are parts of the names of members whose values are not shown, in lower case and
// without separators. requestState and taskId are handles to the calls of others.
var secretNames = []string{
	"authorization", "token", "password", "passwd", "passphrase", "secret", "apikey", "accesskey", "privatekey", "cookie", "session",
	"credential", "bearer", "jwt", "requeststate", "taskid",
}

// IsSecret reports whether the name of a member, a variable or a header looks like that of a
// secret.
func IsSecret(name string) bool {
	name = strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	return name == "auth" || name == "pwd" || name == "pin" || slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(name, part) })
}

// secretValue matches secrets under any name: keys of well-known services, and passwords in
// addresses.
var secretValue = regexp.MustCompile(`^((?i:bearer|basic) \S{8}|sk-|rk_|pk_live|gh[opsu]_|github_pat_|glpat-|xox[a-z]-|xapp-|AKIA|AIza|ya29\.|eyJ|hf_|npm_|lin_api_|ntn_|secret_)|://[^/\s:@]*:[^/\s@]+@`)

// LooksSecret reports whether a value of that name, which may be empty, looks like a secret.
func LooksSecret(name, value string) bool {
	name = strings.ToLower(name)
	return IsSecret(name) || strings.HasSuffix(name, "key") || strings.HasSuffix(name, "auth") || secretValue.MatchString(value)
}
