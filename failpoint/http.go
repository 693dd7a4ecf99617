//go:build failpoints

package failpoint

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Path is where the node serves Handler.
const Path = "/debug/failpoints"

// Handler arms points and cuts links:
//
//	GET     the armed points as JSON, with their passes
//	POST    ?point=…&queue=…&action=…&at=… arms one
//	POST    ?cut=host:port or ?heal=host:port stops and restores the link to a node
//	DELETE  disarms all and releases what is held
func Handler(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodDelete:
		Disarm()
	case r.Method == http.MethodPost && q.Has("cut"):
		Cut(q.Get("cut"))
	case r.Method == http.MethodPost && q.Has("heal"):
		Heal(q.Get("heal"))
	case r.Method == http.MethodPost:
		queue, err := strconv.ParseUint(q.Get("queue"), 10, 64)
		if err != nil {
			http.Error(w, "queue: "+err.Error(), http.StatusBadRequest)
			return
		}
		at, err := strconv.ParseUint(q.Get("at"), 10, 64)
		if err == nil {
			err = Arm(Trap{Point: Point(q.Get("point")), Queue: queue, Action: Action(q.Get("action")), At: at})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(State()) // the client is gone otherwise
}
