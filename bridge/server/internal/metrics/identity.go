package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/bridge/internal/auth"
)

// identity collects the metrics of authentication, and of issuers.
type identity struct{ door *auth.Authenticator }

var (
	authTotal             = prometheus.NewDesc("mcp_bridge_auth_total", "Requests by the result of checking their key or token: ok, missing, expired, audience (it is for something else), issuer (not a configured one), signature, invalid, scope (a call needed one that the token lacked; counted as ok too), denied (no access rule fits), or unavailable (it could not be checked).", []string{"result"}, nil)
	jwksAge               = prometheus.NewDesc("mcp_bridge_jwks_age_seconds", "The age of the keys of an issuer. Absent until they are fetched.", []string{"issuer"}, nil)
	jwksFetches           = prometheus.NewDesc("mcp_bridge_jwks_fetches_total", "How often the keys of an issuer were requested.", []string{"issuer"}, nil)
	jwksFailures          = prometheus.NewDesc("mcp_bridge_jwks_fetch_failures_total", "How often a request for the keys of an issuer failed.", []string{"issuer"}, nil)
	introspections        = prometheus.NewDesc("mcp_bridge_introspections_total", "How often an issuer was asked about an opaque token.", []string{"issuer"}, nil)
	introspectionFailures = prometheus.NewDesc("mcp_bridge_introspection_failures_total", "How often an issuer did not answer about an opaque token.", []string{"issuer"}, nil)
)

func (i identity) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{authTotal, jwksAge, jwksFetches, jwksFailures, introspections, introspectionFailures} {
		to <- d
	}
}

func (i identity) Collect(to chan<- prometheus.Metric) {
	for _, r := range auth.Results {
		to <- prometheus.MustNewConstMetric(authTotal, prometheus.CounterValue, float64(i.door.Count(r)), string(r))
	}
	for _, st := range i.door.Issuers() {
		if st.Asked != nil {
			to <- prometheus.MustNewConstMetric(introspections, prometheus.CounterValue, float64(st.Asked.Asked), st.Issuer)
			to <- prometheus.MustNewConstMetric(introspectionFailures, prometheus.CounterValue, float64(st.Asked.Failed), st.Issuer)
		}
		if !st.Keys {
			continue
		}
		if st.Have {
			to <- prometheus.MustNewConstMetric(jwksAge, prometheus.GaugeValue, time.Since(st.At).Seconds(), st.Issuer)
		}
		to <- prometheus.MustNewConstMetric(jwksFetches, prometheus.CounterValue, float64(st.Fetched), st.Issuer)
		to <- prometheus.MustNewConstMetric(jwksFailures, prometheus.CounterValue, float64(st.Failed), st.Issuer)
	}
}
