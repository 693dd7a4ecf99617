package transport

import (
	"testing"
	"time"
)

// TestHandlersAreThereBeforeTheLink: what a node says once, as soon as it is linked, is heard by one that has just opened its port.
func TestHandlersAreThereBeforeTheLink(t *testing.T) {
	d := &directory{}
	said := startMesh(t, d, "a/1", nil)
	said.OnPeerChange(func(p PeerStatus) {
		if p.Up {
			_ = said.Send(p.Node, 3, []byte("once"))
		}
	})
	said.SetPeers([]NodeID{"a/1", "b/1"}) // a dials b as soon as b is to be found
	heard := make(chan string, 10)
	startMesh(t, d, "b/1", func(cfg *Config) {
		cfg.Handlers = map[uint8]func(NodeID, []byte){3: func(from NodeID, p []byte) { heard <- string(from) + " " + string(p) }}
	})
	select {
	case got := <-heard:
		if got != "a/1 once" {
			t.Errorf("heard %q", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing was heard")
	}
}
