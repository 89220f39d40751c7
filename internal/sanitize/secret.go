package sanitize

import (
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
