package sign

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// AWS signs requests by AWS Signature Version 4.
type AWS struct {
	// Region and Service are as in the API's documentation, such as us-east-1 and execute-api.
	Region  string `yaml:"region"`
	Service string `yaml:"service"`
	// AccessKey and SecretKey are the keys of an account. Temporary keys also have a SessionToken.
	AccessKey    string `yaml:"access_key"`
	SecretKey    string `yaml:"secret_key"`
	SessionToken string `yaml:"session_token"`
}

// Signer returns a signer with these settings.
func (a AWS) Signer() Signer {
	// S3 signs the path without further escapes, and requires the hash of the body as a header.
	s3 := strings.HasPrefix(a.Service, "s3")
	return &awsSigner{a, s3, !s3}
}

type awsSigner struct {
	AWS
	s3    bool
	twice bool // the signed path is escaped once more
}

// Sign implements Signer.
func (a *awsSigner) Sign(_ context.Context, r *http.Request, body []byte) error {
	a.signAt(r, body, time.Now())
	return nil
}

// signAt signs a request at the time now. A canonical text has the parts of the request. Another text
// has the hash of the first, and a key for that day signs it.
func (a *awsSigner) signAt(r *http.Request, body []byte, now time.Time) {
	moment := now.UTC().Format("20060102T150405Z")
	day, hash := moment[:8], hexHash(body)
	// Only these headers are signed, since proxies may change others.
	headers := map[string]string{"host": hostOf(r), "x-amz-date": moment}
	for name, values := range r.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "X-Amz-") && name != "X-Amz-Date" && name != "X-Amz-Security-Token" {
			headers[strings.ToLower(name)] = trimmed(values)
		}
	}
	r.Header["X-Amz-Date"] = []string{moment}
	if a.SessionToken != "" {
		r.Header["X-Amz-Security-Token"] = []string{a.SessionToken}
		headers["x-amz-security-token"] = trimmed(r.Header["X-Amz-Security-Token"])
	}
	if a.s3 {
		r.Header["X-Amz-Content-Sha256"] = []string{hash}
		headers["x-amz-content-sha256"] = hash
	}
	path := cmp.Or(r.URL.EscapedPath(), "/")
	if a.twice {
		path = strings.ReplaceAll(escaped(path), "%2F", "/")
	}
	var query []string
	for name, values := range r.URL.Query() {
		for _, value := range values {
			query = append(query, escaped(name)+"\x00"+escaped(value)) // NUL sorts a before a-b; = would sort it after
		}
	}
	slices.Sort(query)
	names := slices.Sorted(maps.Keys(headers))
	var lines strings.Builder
	for _, name := range names {
		lines.WriteString(name + ":" + headers[name] + "\n")
	}
	signed := strings.Join(names, ";")
	canonical := strings.Join([]string{r.Method, path, strings.ReplaceAll(strings.Join(query, "&"), "\x00", "="), lines.String(), signed, hash}, "\n")
	scope := strings.Join([]string{day, a.Region, a.Service, "aws4_request"}, "/")
	key := []byte("AWS4" + a.SecretKey)
	for _, part := range []string{day, a.Region, a.Service, "aws4_request", strings.Join([]string{"AWS4-HMAC-SHA256", moment, scope, hexHash([]byte(canonical))}, "\n")} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	r.Header["Authorization"] = []string{"AWS4-HMAC-SHA256 Credential=" + a.AccessKey + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" + hex.EncodeToString(key)}
}

// hostOf returns the host of a request, without the port that its scheme implies.
func hostOf(r *http.Request) string {
	u := url.URL{Scheme: r.URL.Scheme, Host: cmp.Or(r.Host, r.URL.Host)}
	if port := u.Port(); u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		return u.Hostname()
	}
	return u.Host
}

// trimmed returns the values of a header, without repeated spaces.
func trimmed(values []string) string {
	values = slices.Clone(values)
	for i, v := range values {
		for strings.Contains(v, "  ") {
			v = strings.ReplaceAll(v, "  ", " ")
		}
		values[i] = strings.TrimSpace(v)
	}
	return strings.Join(values, ",")
}

// escaped percent-encodes a text, except letters, digits and -._~.
func escaped(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

func hexHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Close implements Signer.
func (a *awsSigner) Close() {}
