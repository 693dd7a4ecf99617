package config

import (
	"fmt"
	"net/url"
)

// checkURL returns what is wrong with the URL of a collector, "" if nothing.
func checkURL(text string) string {
	u, err := url.Parse(text)
	if err == nil && u.User != nil { // the text may be logged
		return "must have no user and no password in it: OTEL_EXPORTER_OTLP_HEADERS takes an authorization"
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Sprintf("must be a URL such as http://collector:4317 (https for TLS), got %q", text)
	}
	return ""
}
