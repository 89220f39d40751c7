package era

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
