package fsm

import "github.com/warrenmq/warren/dlx"

// Message is a message as it lies in an entry. Strings and slices may share
// the entry's bytes and must not be modified.
type Message struct {
	Exchange string
	// RoutingKeys are the keys the message was routed with: publish key, CC
	// keys, BCC keys. The first is what consumers see.
	RoutingKeys []string
	BCC         int    // how many keys at the end are BCC's
	Properties  []byte // raw AMQP property flags and values, BCC header removed
	Body        []byte
	Deaths      []dlx.Death // the server's own history, newest first
}
