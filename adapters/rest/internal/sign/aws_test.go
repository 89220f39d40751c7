package sign

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
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
				s.(*awsSigner).signer = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
			}
			if err := s.(*awsSigner).signAt(t.Context(), r, []byte(test.body), moment); err != nil {
				t.Fatal(err)
			}
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

// S3 gets the hash of the body in a header that is signed.
func TestS3(t *testing.T) {
	u, _ := url.Parse("https://examplebucket.s3.amazonaws.com/test.txt")
	r := &http.Request{Method: "GET", URL: u, Host: u.Host, Header: http.Header{"Range": {"bytes=0-9"}}}
	if err := (AWS{Region: "us-east-1", Service: "s3", AccessKey: "AKIDEXAMPLE", SecretKey: "x"}).Signer().Sign(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if r.Header.Get("X-Amz-Content-Sha256") != empty || !strings.Contains(r.Header.Get("Authorization"), "SignedHeaders=host;x-amz-content-sha256;x-amz-date,") || r.Header.Get("Range") == "" {
		t.Errorf("headers are %v", r.Header)
	}
}
