package sanitize

import (
	"regexp"
	"slices"
	"strings"
)

// secretNames are parts of the names of members whose values are not shown, in lower case and without separators.
// requestState and taskId give access to other users' calls.
var secretNames = []string{
	"authorization", "token", "password", "passwd", "passphrase", "secret", "apikey", "accesskey", "privatekey", "cookie", "session",
	"credential", "bearer", "jwt", "requeststate", "taskid",
}

// IsSecret reports whether the name of a member, a variable or a header looks like the name of a secret.
func IsSecret(name string) bool {
	name = strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	return name == "auth" || name == "pwd" || name == "pin" || slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(name, part) })
}

// MayNameSecret reports whether a header, a parameter, a flag or a variable with a name may hold a secret. For members
// of results use IsSecret, because members have names such as key for many other things.
func MayNameSecret(name string) bool {
	lower := strings.ToLower(name)
	return IsSecret(name) || slices.ContainsFunc([]string{"key", "auth", "signature"}, func(part string) bool { return strings.Contains(lower, part) })
}

// secretLook matches the beginnings of known kinds of keys, and runs that may be random: letters with digits,
// hexadecimal digits, or digits.
var secretLook = regexp.MustCompile(`(?i)\b(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|xox[a-z]|npm|hf|shpat|sq0[a-z]{3}|ya29)[-_.][\w-]{8,}|\b(?:AKIA|ASIA|AIza|eyJ)[\w-]{8,}|` +
	`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|-----BEGIN |\b(?:bearer|basic)\s+\S`)

// run matches a part of a text that may be random. dashed matches a part that may be random if it has digits and
// letters of both cases.
var (
	run    = regexp.MustCompile(`[A-Za-z0-9+=]{16,}`)
	dashed = regexp.MustCompile(`[A-Za-z0-9_-]{16,}`)
)

const numerals = "0123456789"

// MayBeSecret reports whether a text may contain a key, a token or a password, by its form. It misses secrets that look
// like words.
func MayBeSecret(text string) bool {
	if secretLook.MatchString(text) {
		return true
	}
	return slices.ContainsFunc(run.FindAllString(text, -1), func(part string) bool {
		return strings.ContainsAny(part, numerals+"+=")
	}) || slices.ContainsFunc(dashed.FindAllString(text, -1), func(part string) bool {
		return strings.ContainsAny(part, numerals) && strings.ToLower(part) != part && strings.ToUpper(part) != part
	})
}

// secretValue matches secrets with any name: keys of well-known services, and passwords in addresses.
var secretValue = regexp.MustCompile(`^((?i:bearer|basic) \S{8}|sk-|rk_|pk_live|gh[opsu]_|github_pat_|glpat-|xox[a-z]-|xapp-|AKIA|AIza|ya29\.|eyJ|hf_|npm_|lin_api_|ntn_|secret_)|://[^/\s:@]*:[^/\s@]+@`)

// LooksSecret reports whether a value looks like a secret. The value's name may be empty.
func LooksSecret(name, value string) bool {
	name = strings.ToLower(name)
	return IsSecret(name) || strings.HasSuffix(name, "key") || strings.HasSuffix(name, "auth") || secretValue.MatchString(value)
}
