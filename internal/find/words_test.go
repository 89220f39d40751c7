package find

import (
	"strings"
	"testing"
)

func TestWords(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"listCoreV1NamespacedPod", "list core v1 namespaced pod"},
		{"repos/list-for_org", "repos list for org"},
		{"getIPAddress", "get ip address"},
		{"listURLs of IDs", "list urls of ids"},
		{"SMS", "sms"},
		{"", ""},
		{"Größe ändern", "größe ändern"},
	} {
		if got := strings.Join(words(test.text), " "); got != test.want {
			t.Errorf("words(%q) = %q, want %q", test.text, got, test.want)
		}
	}
}

func TestStem(t *testing.T) {
	for _, group := range []string{
		"pet pets", "repository repositories", "create creates creating created creation", "delete deleting deletion",
		"add adds adding added", "get getting", "address addresses", "box boxes", "message messages", "status",
		"cancel cancelled canceling", "is", "news", "class classes", "page paging paged",
	} {
		all := strings.Fields(group)
		for _, w := range all {
			if stem(w) != stem(all[0]) {
				t.Errorf("stem(%q) = %q, stem(%q) = %q", w, stem(w), all[0], stem(all[0]))
			}
		}
	}
	for _, pair := range []string{"use user", "stat station"} {
		a, b, _ := strings.Cut(pair, " ")
		if stem(a) == stem(b) {
			t.Errorf("stem(%q) = stem(%q) = %q", a, b, stem(a))
		}
	}
}
