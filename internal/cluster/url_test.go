package cluster

import (
	"fmt"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"redis://localhost", "[localhost:6379] 0 :  false false"},
		{"redis://u:p%40@[::1]:7000/3", "[[::1]:7000] 3 u:p@  false false"},
		{"rediss://bridge:x@redis.example.com:6379/0", "[redis.example.com:6379] 0 bridge:x  true false"},
		{"redis+sentinel://a,b:1/main/2", "[a:26379 b:1] 2 : main false false"},
		{"rediss+cluster://a,b", "[a:6379 b:6379] 0 :  true true"},
		{"redis+cluster://a/1", ""}, {"redis://a,b", ""}, {"redis+sentinel://a", ""}, {"http://a", ""}, {"redis://", ""}, {"redis://a/x", ""}, {"redis://a:b@", ""}, {"redis+://a", ""}, {"redis://a?db=1", ""}, {"", ""},
	} {
		u, err := ParseURL(tc.url)
		got := ""
		if err == nil {
			got = fmt.Sprint(u.Hosts, " ", u.DB, " ", u.Username, ":", u.Password, " ", u.Master, " ", u.TLS, " ", u.Several)
		}
		if got != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.url, got, err, tc.want)
		}
	}
}
