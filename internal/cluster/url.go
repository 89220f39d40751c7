package cluster

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// URL is the parsed address of a store.
type URL struct {
	Hosts              []string // each with a port
	Username, Password string
	DB                 int
	Master             string // name of the master, if the hosts are Sentinels
	Several            bool   // the hosts belong to a Redis Cluster
	TLS                bool
}

var errURL = errors.New("must be redis://USER:PASSWORD@HOST:PORT/DB, redis+sentinel://HOST1,HOST2/MASTER/DB or redis+cluster://HOST1,HOST2; rediss instead of redis is TLS")

// ParseURL reads the address of a store. Its error lists the valid forms. It does not show the address, which may have
// a password.
func ParseURL(text string) (*URL, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	// url.Parse does not accept several hosts, so ParseURL splits them off.
	at := strings.LastIndex(rest, "@") + 1
	hosts, path, _ := strings.Cut(rest[at:], "/")
	u, err := url.Parse(base + "://" + rest[:at] + "host/" + path)
	if err != nil || base != "redis" && base != "rediss" || hosts == "" || strings.ContainsAny(hosts, "?#") || u.RawQuery != "" || u.Fragment != "" {
		return nil, errURL
	}
	to := &URL{Username: u.User.Username(), TLS: base == "rediss"}
	to.Password, _ = u.User.Password()
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		if h, p, err := net.SplitHostPort(host); err != nil || h == "" || p == "" {
			return nil, errURL
		}
		to.Hosts = append(to.Hosts, host)
	}
	db := path
	switch kind {
	case "":
		if strings.Contains(scheme, "+") || len(to.Hosts) > 1 {
			return nil, errURL
		}
	case "cluster":
		if to.Several = true; db != "" {
			return nil, errURL
		}
	case "sentinel":
		if to.Master, db, _ = strings.Cut(path, "/"); to.Master == "" {
			return nil, errURL
		}
	default:
		return nil, errURL
	}
	if db != "" {
		if to.DB, err = strconv.Atoi(db); err != nil || to.DB < 0 {
			return nil, errURL
		}
	}
	return to, nil
}
