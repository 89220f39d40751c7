// Package era defines the protocol's revisions and methods, and translates messages between revisions.
package era

import (
	"slices"
	"strings"
)

// The revisions that the bridge speaks. Sorted as text, they are in the order of time. Only legacy revisions have
// sessions and a handshake.
const (
	Rev20241105 = "2024-11-05"
	Rev20250326 = "2025-03-26"
	Rev20250618 = "2025-06-18"
	Rev20251125 = "2025-11-25"
	Rev20260728 = "2026-07-28"

	// LatestLegacy answers a client that asks for an unknown revision.
	LatestLegacy = Rev20251125
	// FirstModern is the first revision without handshake and sessions.
	FirstModern = Rev20260728
	// LatestModern is the revision that the bridge tries first with a modern server.
	LatestModern = Rev20260728
)

// firstDraft is the revision before 2024-11-05. The differences do not concern the bridge. Today's clients do not know
// it, so the bridge tells them 2024-11-05 instead.
const firstDraft = "2024-10-07"

var (
	modern = []string{Rev20260728}
	legacy = []string{Rev20251125, Rev20250618, Rev20250326, Rev20241105}
)

// Modern returns the supported modern revisions, newest first.
func Modern() []string { return slices.Clone(modern) }

// Supported returns all supported revisions, newest first.
func Supported() []string { return slices.Concat(modern, legacy) }

// Legacy returns the legacy revisions, newest first.
func Legacy() []string { return slices.Clone(legacy) }

// IsLegacy reports whether the bridge speaks rev as a legacy revision.
func IsLegacy(rev string) bool { return rev == firstDraft || slices.Contains(legacy, rev) }

// Name returns the era of a revision: "modern" or "legacy".
func Name(rev string) string {
	if IsModern(rev) {
		return "modern"
	}
	return "legacy"
}

// IsModern reports whether rev is a modern revision, even one that the bridge does not speak.
func IsModern(rev string) bool { return rev >= FirstModern && len(rev) == len(FirstModern) }

// Negotiate returns the revision in the answer to a client's initialize. It is the client's, if that is a supported
// legacy revision. Otherwise it is LatestLegacy.
func Negotiate(asked string) string {
	switch {
	case asked == firstDraft:
		return Rev20241105
	case IsLegacy(asked):
		return asked
	}
	return LatestLegacy
}

// Listen is the method that opens a subscription. Its request lasts until one side ends it (2026-07-28, Subscriptions).
const Listen = "subscriptions/listen"

// Complete is the method that completes an argument of a prompt or of a resource template.
const Complete = "completion/complete"

// both holds the methods that both eras have.
var both = map[string]bool{
	"tools/list": true, "tools/call": true, "prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true, Complete: true,
}

func InBoth(method string) bool { return both[method] }

// removed holds the legacy methods that 2026-07-28 does not have (B19).
var removed = map[string]bool{
	"initialize": true, "ping": true, "logging/setLevel": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"tasks/list": true, "tasks/result": true,
}

// IsRemoved reports whether only the legacy era has the method.
func IsRemoved(method string) bool { return removed[method] }

// ReportsChange reports whether notifications of that method report a change of a list or a resource.
func ReportsChange(method string) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated":
		return true
	}
	return false
}

// Acknowledged is the first notification of a subscription. It lists what the server accepted of the request.
const Acknowledged = "notifications/subscriptions/acknowledged"

// MayAsk reports whether a modern server may answer the method with questions (2026-07-28, multi round-trip requests).
// During calls of these methods, a legacy server may ask its client.
func MayAsk(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// IsTask reports whether the method is about a task.
func IsTask(method string) bool { return strings.HasPrefix(method, "tasks/") }

// IsList reports whether the method lists tools, prompts, resources or templates.
func IsList(method string) bool {
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return true
	}
	return false
}
