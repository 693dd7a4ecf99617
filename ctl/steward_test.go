package ctl

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// TestDecommissionThatOthersEnd: while the verb waits for a node to be empty, somebody else has the node stay, or has it dismissed first.
func TestDecommissionThatOthersEnd(t *testing.T) {
	const gone = `{"error":"not_cluster_member","reason":"no node 'n3' is in the cluster"}`
	const leaves, done = `{"state":"leaving","replicas":3}`, `{"state":"leaving","done":true}`
	type answer struct {
		status int
		body   string
	}
	for _, tc := range []struct {
		name      string
		get, post answer
		code      int
		says      string
	}{
		{"it stays", answer{200, `{"state":"regular","replicas":3}`}, answer{409, ""}, ExitSoftware, "node n3 stays in the cluster"},
		{"it is gone while it is asked for", answer{404, gone}, answer{409, ""}, 0, "Node n3 is no node of the cluster any more"},
		{"it is gone before it is dismissed", answer{200, done}, answer{404, gone}, 0, "Node n3 is no node of the cluster any more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
				a := answer{200, leaves}
				switch r.Method {
				case http.MethodGet:
					a = tc.get
				case http.MethodPost:
					a = tc.post
				}
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, a.body) // the test sees what is missing
			}, "decommission_node", "n3", "-t", "20")
			if code != tc.code || !strings.Contains(out+failure, tc.says) {
				t.Errorf("exit code %d: %s %s", code, out, failure)
			}
		})
	}
}

// TestDecommissionWhileNodesAreAway: the verb that waits for a node to leave bears that the one that it asks is frozen for a while, or that the catalog gets another leader.
func TestDecommissionWhileNodesAreAway(t *testing.T) {
	var gets, posts atomic.Int32
	code, out, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && gets.Add(1) == 1:
			<-r.Context().Done() // it is frozen
		case r.Method == http.MethodPost && posts.Add(1) == 1:
			says(503, `{"error":"service_unavailable","reason":"read index: catalog has no leader"}`)(w, r)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusNoContent)
		default:
			says(200, fmt.Sprintf(`{"state":"leaving","replicas":3,"done":%t}`, r.Method == http.MethodGet))(w, r)
		}
	}, "decommission_node", "n3", "-t", "20")
	if code != ExitOK || !strings.Contains(out, "Node n3 is no node of the cluster any more") {
		t.Errorf("exit code %d: %s %s", code, out, failure)
	}
}
