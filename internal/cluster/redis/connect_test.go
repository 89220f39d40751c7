package redis_test

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/cluster/redis"
)

// rediss:// is TLS, and ca_file names who may sign the certificate of the store.
func TestConnectTLS(t *testing.T) {
	store := httptest.NewTLSServer(nil) // it greets nobody, but has a certificate
	defer store.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: store.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(store.URL, "https://")
	ping := func(url, caFile string) string {
		t.Helper()
		c, err := redis.Connect(url, caFile)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		err = c.Ping(t.Context()).Err()
		if err == nil {
			t.Fatalf("%s: a web server is a store", url)
		}
		return err.Error()
	}
	if err := ping("rediss://"+address, ""); !strings.Contains(err, "unknown authority") {
		t.Errorf("without ca_file: %s", err)
	}
	for _, url := range []string{"rediss://" + address, "redis://" + address} { // TLS with the right authority, and none
		if err := ping(url, ca); strings.Contains(err, "x509") {
			t.Errorf("%s: %s", url, err)
		}
	}
	if _, err := redis.Connect("rediss://"+address, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a ca_file that is not there is no fault")
	}
}
