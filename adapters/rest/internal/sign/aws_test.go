package sign

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// These are the published examples of the signature, by name. In that with a session token, the
// token is signed.
func TestAWS(t *testing.T) {
	moment := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	for _, test := range []struct {
		name, method, target string
		header               http.Header
		body, token          string
		signed, signature    string
	}{
		{"get-vanilla", "GET", "/", nil, "", "", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"get-vanilla-query-order-key-case", "GET", "/?Param2=value2&Param1=value1", nil, "", "", "host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		{"get-unreserved", "GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", nil, "", "", "host;x-amz-date", "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		{"get-utf8", "GET", "/\u1234", nil, "", "", "host;x-amz-date", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
		{"post-vanilla", "POST", "/", nil, "", "", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		{"post-x-www-form-urlencoded", "POST", "/", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, "Param1=value1", "", "content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"post-sts-header-before", "POST", "/", nil, "", "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==", "host;x-amz-date;x-amz-security-token", "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
		// Not published: names and values are sorted once they are escaped, and spaces of headers count once.
		{"order", "GET", "/?a-b=1&a=a%2Fb&a=a-b&a=+", http.Header{"Content-Type": {" a   b ", "c"}}, "", "", "content-type;host;x-amz-date", "c2be45ab1cb5f6cc45170ec4d14c3a7e23d7bab37aa258a651c7789cb8f5653b"},
		// Headers that proxies change are not signed, nor is an older signature.
		{"others", "GET", "/", http.Header{"Accept-Encoding": {"gzip"}, "Traceparent": {"00"}, "Authorization": {"old"}, "X-Amz-Date": {"old"}}, "", "", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	} {
		t.Run(test.name, func(t *testing.T) {
			u, err := url.Parse("https://example.amazonaws.com" + test.target)
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{Method: test.method, URL: u, Host: u.Host, Header: http.Header{}}
			for name, values := range test.header {
				r.Header[name] = values
			}
			s := AWS{Region: "us-east-1", Service: "service", AccessKey: "AKIDEXAMPLE", SecretKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", SessionToken: test.token}.Signer()
			if test.name == "get-utf8" { // the example has the path encoded once, as S3 does; other services encode it twice
				s.(*awsSigner).twice = false
			}
			s.(*awsSigner).signAt(r, []byte(test.body), moment)
			want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=" + test.signed + ", Signature=" + test.signature
			if got := r.Header.Get("Authorization"); got != want {
				t.Errorf("Authorization: %s\nwant           %s", got, want)
			}
			if got := r.Header.Get("X-Amz-Date"); got != "20150830T123600Z" || r.Header.Get("X-Amz-Security-Token") != test.token {
				t.Errorf("headers are %v", r.Header)
			}
		})
	}
}

// S3 gets the hash of the body in a header that is signed. The signatures are those of its documentation.
func TestS3(t *testing.T) {
	for query, want := range map[string]string{
		"lifecycle":           "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
		"max-keys=2&prefix=J": "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
	} {
		u, _ := url.Parse("https://examplebucket.s3.amazonaws.com/?" + query)
		r := &http.Request{Method: "GET", URL: u, Host: u.Host, Header: http.Header{"Range": {"bytes=0-9"}}}
		s := AWS{Region: "us-east-1", Service: "s3", AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}.Signer()
		s.(*awsSigner).signAt(r, nil, time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
		const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="+want) || r.Header.Get("X-Amz-Content-Sha256") != empty || r.Header.Get("Range") == "" {
			t.Errorf("?%s: headers are %v", query, r.Header)
		}
	}
}
