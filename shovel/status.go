package shovel

import "time"

// State is RabbitMQ's word for what a shovel does.
type State string

// The states.
const (
	// Starting: it connects.
	Starting State = "starting"
	// Running: messages go through it.
	Running State = "running"
	// Terminated: it has failed; it starts again after the reconnect delay, if there is one.
	Terminated State = "terminated"
)

// Status is what a shovel does at the moment.
type Status struct {
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	State State  `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Reason is why it is terminated, or why messages wait although it runs; else empty.
	Reason string `json:"reason,omitempty"`
	// Blocked: the destination has said that it takes nothing (connection.blocked).
	Blocked bool `json:"blocked,omitempty"`
	// Source and Destination are the URIs that it is connected to, without user and password.
	Source      string `json:"source,omitempty"`
	Destination string `json:"destination,omitempty"`
	// Forwarded is how many messages have arrived since the shovel was started on this node. Pending are under way, Waiting those of them that
	// were refused, or that no queue wanted, and that will be tried again.
	Forwarded uint64 `json:"forwarded"`
	Pending   int    `json:"pending"`
	Waiting   int    `json:"waiting"`
	// Remaining is how many messages are to come until the shovel is done; -1: it goes on.
	Remaining int `json:"remaining"`
}

// Status tells what the worker does.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

func (w *Worker) note(change func(*Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.status)
}

// enter notes a state.
func (w *Worker) enter(s State, reason string) {
	w.note(func(st *Status) {
		if st.State != s {
			st.Since = time.Now()
		}
		st.State, st.Reason = s, reason
		if s != Running {
			st.Blocked = false
		}
	})
}
