package management

import "net/http"

// Memory is what a node's memory is used for, in bytes.
type Memory struct {
	// Node is its name.
	Node string `json:"node"`
	// Used is what the alarm counts, and Limit where it begins: less than Total by what is free or was never touched.
	Used  uint64 `json:"used"`
	Limit uint64 `json:"limit"`
	// Total is the sum of the parts: what Go's runtime holds.
	Total uint64       `json:"total"`
	Parts []MemoryPart `json:"parts"`
}

// MemoryPart is a part of it; no byte is in two.
type MemoryPart struct {
	Part  string `json:"part"`
	Bytes uint64 `json:"bytes"`
	About string `json:"about"` // for people
}

func (a *API) routeMemory() {
	a.handle("GET /api/warren/memory", func(_ *http.Request, u User) (any, error) {
		if !u.monitors() {
			return nil, unauthorised("Not monitor user")
		}
		m := a.cfg.Local.Memory()
		m.Node = a.localName()
		return m, nil
	})
}
