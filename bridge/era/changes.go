package era

import "strings"

// Listen is the one request that lasts: it ends when nobody listens any more
// (2026-07-28, Subscriptions).
const Listen = "subscriptions/listen"

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
