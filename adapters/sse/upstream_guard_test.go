package sse

import (
	"errors"
	"net/http"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
)

// What a refusal says about the server: only its own faults count against it.
func TestUpstreamRefusalKinds(t *testing.T) {
	for status, want := range map[int]error{
		204: bridge.ErrUnavailable, 302: bridge.ErrUnavailable, 400: bridge.ErrRejected, 401: bridge.ErrCredentials, 403: bridge.ErrCredentials,
		413: bridge.ErrRejected, 422: bridge.ErrRejected, 429: bridge.ErrRejected, 500: bridge.ErrLost, 501: bridge.ErrUnavailable, 503: bridge.ErrUnavailable,
	} {
		err := (&Upstream{name: "s"}).refusal(&http.Response{StatusCode: status, Request: &http.Request{Method: http.MethodPost}}, nil)
		if !errors.Is(err, want) || errors.Is(err, bridge.ErrRejected) != errors.Is(want, bridge.ErrRejected) {
			t.Errorf("HTTP %d is %v, want %v", status, err.Kind, want)
		}
	}
}
