package cut

import (
	"encoding/json"
	"fmt"
)

// Method is the method of the mesh that a Node answers.
const Method uint8 = 0x58

// do is what a node is asked for. The messages are JSON with a version; the answer to a read is the bytes alone.
type do string

const (
	doLed     do = "led"     // what do you lead? Nothing is held
	doHold    do = "hold"    // close the gate, and tell what you lead
	doCapture do = "capture" // take the states of queues, all or none unless the request says Each
	doRelease do = "release" // open the gate
	doConfirm do = "confirm" // prove that you lead what you have captured, open what is wanted of it and drop the rest
	doTouch   do = "touch"   // go on keeping it
	doRead    do = "read"    // the next bytes of a queue
	doDrop    do = "drop"    // forget it all
)

const (
	messageVersion  = 1
	messageBytesMax = 64 << 20
	// chunkBytesMax is what one read answers at most.
	chunkBytesMax = 1 << 20
	// queuesMax bounds the queues of one message.
	queuesMax = 1 << 20
)

// Queue is a queue that a node leads, in a term of its log.
type Queue struct {
	ID   uint64 `json:"id"`
	Term uint64 `json:"term"`
}

// Opened is a queue whose state can be read: Bytes bytes of a snapshot's stream as of Index.
type Opened struct {
	ID    uint64 `json:"id"`
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
	Bytes int64  `json:"bytes"`
}

// Failed is a queue for which something could not be done.
type Failed struct {
	ID  uint64 `json:"id"`
	Why string `json:"why"`
}

type request struct {
	Version int    `json:"version"`
	Do      do     `json:"do"`
	ID      string `json:"id"` // of the cut
	// LimitMS is for how long the gate is closed at most, or a confirmation may take.
	LimitMS int64   `json:"limit_ms,omitempty"`
	Queues  []Queue `json:"queues,omitempty"`
	// Each has a capture and a confirmation do what can be done, and tell of each queue for which that failed. A program of before does not know it and
	// fails as a whole.
	Each bool `json:"each,omitempty"`
	// Queue and Offset say what to read.
	Queue  uint64 `json:"queue,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

type answer struct {
	Led      []Queue  `json:"led,omitempty"`
	Opened   []Opened `json:"opened,omitempty"`
	Failed   []Failed `json:"failed,omitempty"`
	Unbroken bool     `json:"unbroken,omitempty"`
}

func decodeRequest(raw []byte) (*request, error) {
	if len(raw) > messageBytesMax {
		return nil, fmt.Errorf("message of %d bytes, the maximum is %d", len(raw), messageBytesMax)
	}
	r := new(request)
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("decode a message: %w", err)
	}
	switch {
	case r.Version != messageVersion:
		return nil, fmt.Errorf("message of version %d, this program knows version %d", r.Version, messageVersion)
	case r.ID == "" && r.Do != doLed || len(r.ID) > 64:
		return nil, fmt.Errorf("cut %.80q", r.ID)
	case len(r.Queues) > queuesMax:
		return nil, fmt.Errorf("%d queues, the maximum is %d", len(r.Queues), queuesMax)
	case r.LimitMS < 0 || r.LimitMS > limitMax.Milliseconds():
		return nil, fmt.Errorf("limit of %d ms, the maximum is %v", r.LimitMS, limitMax)
	}
	return r, nil
}
