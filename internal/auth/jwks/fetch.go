package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

const (
	maxDocument = 1 << 20          // bytes of a set or of metadata
	fetchLimit  = 10 * time.Second // timeout of one request
	minLife     = 5 * time.Minute
	maxLife     = time.Hour
)

// errNoDocument means that the server has no document at an address.
var errNoDocument = errors.New("there is no such document")

// Client returns a client for requests to an issuer, which follows no redirect.
func Client(transport http.RoundTripper) *http.Client {
	return discovery.Unredirected(transport, fetchLimit)
}

// Transport returns a transport for requests to an issuer. It uses the proxies of the environment. It trusts the
// certificates of the system and those in caFile, a PEM file, which may be empty.
func Transport(caFile string) (http.RoundTripper, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return transport, nil
	}
	data, err := readFile(caFile)
	if err != nil {
		return nil, files.Unpathed(err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, errors.New("has no certificate in PEM form")
	}
	transport.TLSClientConfig.RootCAs = roots
	return transport, nil
}

// CheckAddress returns the fault of an issuer's URL, or nil. The URL must be https, or http on this machine.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return errors.New("must be a URL such as https://idp.example.com")
	case u.Scheme == "https" || u.Scheme == "http" && discovery.Loopback(u.Hostname()):
		return nil
	}
	return errors.New("must be https: over http, anybody on the network could replace the keys; http is for this machine only")
}

// set returns the key set: Text of the options, otherwise the file or URL From, otherwise the jwks_uri in the issuer's
// metadata. kept is how long the set may be used, from minLife to maxLife.
func (s *Set) set(ctx context.Context) (data []byte, kept time.Duration, err error) {
	from := s.o.From
	if s.o.Text != nil {
		return s.o.Text, maxLife, nil
	}
	if from == "" {
		if from, err = s.discover(ctx); err != nil {
			return nil, 0, err
		}
	}
	if !strings.Contains(from, "://") {
		data, err = readFile(from)
		return data, minLife, err
	}
	data, h, err := s.get(ctx, from)
	if err != nil {
		return nil, 0, fmt.Errorf("the keys at %s: %w", from, err)
	}
	return data, discovery.MaxAge(h, minLife, maxLife), nil
}

// readFile reads a file with keys or certificates.
func readFile(path string) ([]byte, error) {
	data, err := files.Read(path, maxDocument+1)
	if err == nil && len(data) > maxDocument {
		err = errors.New("the file is larger than 1 MiB")
	}
	return data, err
}

// discover returns the jwks_uri in the issuer's metadata.
func (s *Set) discover(ctx context.Context) (string, error) {
	i, err := s.Metadata(ctx)
	if err != nil {
		return "", err
	}
	if err := CheckAddress(i.Keys); err != nil {
		return "", fmt.Errorf("the metadata of the issuer: jwks_uri %w", err)
	}
	return i.Keys, nil
}

// Metadata fetches the issuer's metadata from the addresses of RFC 8414 §3 and §5 and OpenID Connect
// Discovery §4.
func (s *Set) Metadata(ctx context.Context) (*discovery.Issuer, error) {
	u, err := url.Parse(s.o.Issuer)
	if err != nil {
		return nil, err
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	addresses := []string{origin + "/.well-known/openid-configuration" + path, origin + "/.well-known/oauth-authorization-server" + path}
	if path != "" {
		addresses[0] = origin + path + "/.well-known/openid-configuration"
		addresses = append(addresses, origin+"/.well-known/openid-configuration"+path)
	}
	for _, address := range addresses {
		data, _, err := s.get(ctx, address)
		if errors.Is(err, errNoDocument) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the metadata at %s: %w", address, err)
		}
		if !gjson.ValidBytes(data) || !gjson.ParseBytes(data).IsObject() {
			return nil, fmt.Errorf("the metadata at %s must be JSON", address)
		}
		i := discovery.ParseIssuer(data)
		if i.Name != s.o.Issuer {
			return nil, fmt.Errorf("the issuer in the metadata at %s is %.200q: write the issuer exactly like that", address, i.Name)
		}
		return i, nil
	}
	return nil, fmt.Errorf("the issuer publishes no metadata: tried %s", strings.Join(addresses, ", "))
}

func (s *Set) get(ctx context.Context, address string) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Accept", "application/json")
	a, err := s.o.Client.Do(r)
	if err != nil {
		return nil, nil, discovery.Reason(err)
	}
	defer a.Body.Close()
	switch {
	case a.StatusCode >= 400 && a.StatusCode < 500 && a.StatusCode != http.StatusTooManyRequests:
		return nil, nil, errNoDocument
	case a.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("the answer is %s", a.Status)
	}
	data, err := discovery.ReadAnswer(a)
	return data, a.Header, err
}
