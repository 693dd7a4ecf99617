package management

import (
	"net/http/httptest"
	"testing"
)

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		name, method string
		header       []string
		refused      bool
	}{
		{"no browser", "DELETE", nil, false},
		{"the page", "DELETE", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://node:15672"}, false},
		{"the page over plain HTTP", "PUT", []string{"Origin", "http://node:15672"}, false},
		{"another site", "POST", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, true},
		{"another port of this host", "POST", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://node:8080"}, true},
		{"another site, an old browser", "POST", []string{"Origin", "https://evil.example"}, true},
		{"a sandboxed frame", "DELETE", []string{"Origin", "null"}, true},
		{"another site looks", "GET", []string{"Sec-Fetch-Site", "cross-site"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "http://node:15672/api/queues/%2F/q", nil)
			for i := 0; i < len(c.header); i += 2 {
				r.Header.Set(c.header[i], c.header[i+1])
			}
			if err := sameOrigin(r); (err != nil) != c.refused {
				t.Errorf("%s %v: %v, want refused: %v", c.method, c.header, err, c.refused)
			}
		})
	}
}
