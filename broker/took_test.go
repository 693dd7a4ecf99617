package broker

import "testing"

// What was fetched without acks leaves its queue when the client is to be sent it. Before that it is the channel's: if the client cannot take it, or the channel
// ends, it goes back as no client has seen it.
func TestFetchedWithoutAcks(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-queue-type", "quorum"))
	c.put("q", "one", nil)
	c.put("q", "two", nil)
	fetch := func(c *client) *Delivery {
		t.Helper()
		d, _, err := c.ch.Get(t.Context(), "q", true)
		if err != nil || d == nil {
			t.Fatalf("%v, %v", d, err)
		}
		return d
	}
	other := dial(t, b)
	if d := fetch(other); string(d.Body) != "one" {
		t.Errorf("fetched %q", d.Body)
	}
	if d := fetch(c); string(d.Body) != "two" {
		t.Errorf("fetched %q", d.Body)
	} else {
		c.ch.Took(d)
	}
	other.ch.Close(t.Context())
	if d := c.eventually("q"); string(d.Body) != "one" || d.Failed != 0 {
		t.Errorf("fetched %q, returned %d times", d.Body, d.Failed)
	} else {
		c.ch.Close(t.Context())
	}
	again := dial(t, b)
	again.eventually("q")
	if d := again.get("q"); d != nil {
		t.Errorf("there is %q, too", d.Body)
	}
}
