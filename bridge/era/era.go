// Package era knows the protocol's revisions, and what its methods are about.
package era

import (
	"slices"
	"strings"
)

// The revisions of the protocol that we speak. Their order as text is their
// order in time. Sessions, and a handshake, are of the legacy ones only.
const (
	Rev20241105 = "2024-11-05"
	Rev20250326 = "2025-03-26"
	Rev20250618 = "2025-06-18"
	Rev20251125 = "2025-11-25"
	Rev20260728 = "2026-07-28"

	// LatestLegacy is what a client is offered that asks for something unknown.
	LatestLegacy = Rev20251125
	// FirstModern is the first revision without handshake and sessions.
	FirstModern = Rev20260728
	// LatestModern is what a server is asked for first.
	LatestModern = Rev20260728
)

var (
	modern = []string{Rev20260728}
	legacy = []string{Rev20251125, Rev20250618, Rev20250326, Rev20241105}
)

// Modern returns the modern revisions that we speak, newest first.
func Modern() []string { return slices.Clone(modern) }

// Supported returns all revisions that we speak, newest first.
func Supported() []string { return slices.Concat(modern, legacy) }

// Legacy returns the legacy revisions, newest first.
func Legacy() []string { return slices.Clone(legacy) }

// IsLegacy reports whether rev is a legacy revision that we know.
func IsLegacy(rev string) bool { return slices.Contains(legacy, rev) }

// Name returns the name of the era of a revision: "modern" or "legacy".
func Name(rev string) string {
	if IsModern(rev) {
		return "modern"
	}
	return "legacy"
}

// IsModern reports whether rev is of the stateless era, known to us or not.
func IsModern(rev string) bool { return rev >= FirstModern && len(rev) == len(FirstModern) }

// Negotiate returns the revision that answers a client's initialize: its own
// when it is a legacy one that we know, otherwise the latest legacy
// one.
func Negotiate(asked string) string {
	if IsLegacy(asked) {
		return asked
	}
	return LatestLegacy
}

// Listen is the one request that lasts: it ends when nobody listens any more
// (2026-07-28, Subscriptions).
const Listen = "subscriptions/listen"

// Complete asks how an argument of a prompt or a template may go on.
const Complete = "completion/complete"

// both are the methods that the legacy era and the modern one have.
var both = map[string]bool{
	"tools/list": true, "tools/call": true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, Complete: true,
}

// InBoth reports whether both eras have a method.
func InBoth(method string) bool { return both[method] }

// removed are the methods of legacy revisions that 2026-07-28 does not have (B19).
var removed = map[string]bool{
	"initialize": true, "ping": true, "logging/setLevel": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"tasks/list": true, "tasks/result": true,
}

// IsRemoved reports whether only the legacy era has a method.
func IsRemoved(method string) bool { return removed[method] }

// TellsChange reports whether notifications of that method say that something has
// changed.
func TellsChange(method string) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated":
		return true
	}
	return false
}

// Acknowledged is the notification that says to what a server has subscribed its
// client: the first on the stream of a Listen.
const Acknowledged = "notifications/subscriptions/acknowledged"

// MayAsk reports whether a request of that method may be answered with questions
// (2026-07-28, multi round-trip requests), and whether a legacy server may ask
// its client something about it.
func MayAsk(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// IsTask reports whether a method is about a task.
func IsTask(method string) bool { return strings.HasPrefix(method, "tasks/") }

// IsList reports whether a method lists tools, prompts, resources or templates.
func IsList(method string) bool {
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return true
	}
	return false
}
