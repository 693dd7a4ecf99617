package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Type tells what is known about an operation.
type Type string

// The types: see the package comment.
const (
	Invoke Type = "invoke"
	OK     Type = "ok"
	Fail   Type = "fail"
	Info   Type = "info"
)

// Nemesis is the process of faults. Final is the process of what happens after the
// clients have ended.
const (
	Nemesis = -1
	Final   = -2
)

// What the operations of queue workloads are. Others use names of their own.
const (
	Publish = "publish" // Value to Queue, with a confirm; ok: confirmed
	Deliver = "deliver" // Value came from Queue to a consumer
	Get     = "get"     // a basic.get of Queue; ok without a Value: it was empty
	Drain   = "drain"   // Value came from Queue after the end, and was taken out
	Ack     = "ack"     // ok: written to the socket; nobody knows whether it counted
	Reject  = "reject"  // without requeue; as Ack
	Requeue = "requeue" // basic.reject with requeue; as Ack
	Count   = "count"   // Value is the number of messages in Queue after the end
	State   = "state"   // of Final: Value digests what the replica of Queue at Node holds, Extra "applied" says when
	Fault   = "fault"   // of Nemesis: invoke when it begins, its end when it is healed
	Connect = "connect" // a client's connection
)

// Op is one line of a history.
type Op struct {
	// Index numbers the lines from 1.
	Index int `json:"index"`
	// Of is the index of the invoke that this operation ends, or 0.
	Of int `json:"of,omitempty"`
	// Time is since the beginning of the run, by the monotonic clock.
	Time time.Duration `json:"time"`
	// Process is the client, counted from 0, or Nemesis or Final.
	Process int `json:"process"`
	// Life counts the connections of the process. Order is promised within one only.
	Life int    `json:"life,omitempty"`
	Type Type   `json:"type"`
	F    string `json:"f"`
	// Node is the node that the client talks to, or that a fault is aimed at.
	Node  string `json:"node,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Value is what the operation is about: a message's ID, mostly.
	Value string `json:"value,omitempty"`
	// Redelivered is the flag of a delivery.
	Redelivered bool `json:"redelivered,omitempty"`
	// Deaths is how often the delivered message had been dead-lettered, by x-death.
	Deaths int    `json:"deaths,omitempty"`
	Error  string `json:"error,omitempty"`
	// Extra is for workloads that need more.
	Extra map[string]string `json:"extra,omitempty"`
}

// Delivery tells whether the operation brought a message to a client.
func (o Op) Delivery() bool {
	switch o.F {
	case Deliver, Drain:
		return o.Type == OK
	case Get:
		return o.Type == OK && o.Value != ""
	}
	return false
}

// MessageID names a publish. No two publishes of a run have the same one, also not
// when a client tries again.
type MessageID struct {
	// Process and Life name the publishing channel, Seq counts on it from 1.
	Process, Life, Seq int
}

// String returns "process.life.seq".
func (m MessageID) String() string { return fmt.Sprintf("%d.%d.%d", m.Process, m.Life, m.Seq) }

// ParseMessageID reads what String wrote.
func ParseMessageID(s string) (MessageID, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return MessageID{}, fmt.Errorf("message id %q: not process.life.seq", s)
	}
	var n [3]int
	for i, part := range parts {
		var err error
		if n[i], err = strconv.Atoi(part); err != nil {
			return MessageID{}, fmt.Errorf("message id %q: %w", s, err)
		}
	}
	return MessageID{Process: n[0], Life: n[1], Seq: n[2]}, nil
}
