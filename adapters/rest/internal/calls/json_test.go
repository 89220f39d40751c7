package calls

import "testing"

func TestMemberOf(t *testing.T) {
	for _, tc := range []struct{ object, want string }{
		{`{"arguments":{"a":[1,"}"]}}`, `{"a":[1,"}"]}`},
		{" { \"name\" : \"x,\" ,\n \"arguments\" : null } ", `null`},
		{`{"arg\u0075ments":1,"arguments":2}`, `1`},
		{`{"a":{"arguments":1}}`, ``},
		{`{}`, ``}, {``, ``}, {`[1]`, ``},
	} {
		if got := string(memberOf([]byte(tc.object), "arguments")); got != tc.want {
			t.Errorf("memberOf(%s) = %q, want %q", tc.object, got, tc.want)
		}
	}
}
