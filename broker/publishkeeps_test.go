package broker

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/warrenmq/warren/amqp"
)

// TestIdleChannelKeepsNoMessage: of what a channel has published nothing stays with it.
func TestIdleChannelKeepsNoMessage(t *testing.T) {
	c := dial(t, newBroker(t))
	c.declare("a", nil)
	headers := amqp.Table{}
	headers.Set("h", "x")
	kept := func() (all []weak.Pointer[byte]) {
		body, props := make([]byte, 1<<20), properties(func(p *amqp.Properties) { p.SetHeaders(headers) })
		if _, routed, err := c.publish("", "a", string(body), props); err != nil || !routed {
			t.Fatal(routed, err)
		}
		p := &Publish{Key: "a", Properties: props, Body: body}
		if _, err := c.ch.Publish(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return []weak.Pointer[byte]{weak.Make(&body[0]), weak.Make(&props[0])}
	}()
	deadline := time.Now().Add(10 * time.Second)
	for i, w := range kept {
		for w.Value() != nil {
			if time.Now().After(deadline) {
				t.Fatalf("the channel keeps part %d of its last message", i)
			}
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
	}
	runtime.KeepAlive(c)
}
