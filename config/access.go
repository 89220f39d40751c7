package config

import (
	"slices"
)

// Words are a list of texts. In a file, one text stands for a list of one.
type Words []string

// Access is a rule for one caller with a key, or for users with tokens.
type Access struct {
	// Name is the principal, as logs show it. Principals share no state.
	Name string `yaml:"name"`
	// Token is the caller's key, sent as Authorization: Bearer TOKEN or X-API-Key: TOKEN.
	Token string `yaml:"token"`
	// TokenFile is a file with the key, in place of Token. The bridge reads it again after a change.
	TokenFile string `yaml:"token_file"`
	// Issuer, Claims, Scopes and Users make this a rule for users, without a key. The rule matches a token that
	// satisfies all of these fields that are set. Each user is a principal of its own.
	//
	// Issuer is the issuer of the token, one of Config.OAuth. Default: any of them.
	Issuer string `yaml:"issuer"`
	// Claims holds patterns for the values of claims, by the names of the claims. Each claim has to match one of its
	// patterns.
	Claims map[string]Words `yaml:"claims"`
	// Scopes are the scopes that the token must have, all of them.
	Scopes []string `yaml:"scopes"`
	// Users are patterns for the subject of the token. AnyUser matches every subject.
	Users Words `yaml:"users"`
	// Servers are patterns for the names of the servers that the caller may use. Default: all servers.
	Servers []string `yaml:"servers,some"`
	// Tools selects the tools that the caller may use at these servers. Default: all tools.
	Tools Choice `yaml:"tools"`
	// Operator lets the caller see the state of the bridge and of all servers in /readyz and /metrics, even of servers
	// that Servers excludes. Default false.
	Operator bool `yaml:"operator"`
}

// Choice selects tools by the names that clients see. Patterns are as in Rules.
type Choice struct {
	// Allow lists the allowed tools. Default: all.
	Allow []string `yaml:"allow,some"`
	// Deny lists the hidden tools, even if Allow has them. Default: none.
	Deny []string `yaml:"deny"`
}

// AccessLog says where the bridge writes a line for each call.
type AccessLog struct {
	// To is "stdout", "stderr", or a file to which the bridge appends. Empty means no log.
	To string `yaml:"to"`
	// Payloads adds requests and answers to the log, without values that look like secrets. It is for debugging only.
	Payloads bool `yaml:"payloads"`
}

// users reports whether the rule is for users with tokens, not for a key.
func (a *Access) users() bool {
	return a.Issuer != "" || len(a.Claims) > 0 || len(a.Scopes) > 0 || len(a.Users) > 0
}

// everybody reports whether the rule matches all users of all issuers.
func (a *Access) everybody() bool {
	return a.Issuer == "" && len(a.Claims)+len(a.Scopes) == 0 && slices.ContainsFunc(a.Users, func(p string) bool { return p == AnyUser || p == "*" })
}

// AnyUser is the pattern in Access.Users that matches every user.
const AnyUser = "any"
