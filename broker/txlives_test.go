package broker

import "testing"

// A transaction whose messages were routed to a queue that goes on in another life before the commit brings them to that, whichever queue coordinates.
func TestTxOfAQueueThatGoesOn(t *testing.T) {
	for _, body := range []string{"m", "a longer one, so that its queue coordinates"} {
		b := newBroker(t)
		goOn := loseMajority(t, b)
		c := dial(t, b)
		c.declare("other", nil)
		c.ch.TxSelect()
		for _, queue := range []string{"q", "other"} {
			text := "other"
			if queue == "q" {
				text = body
			}
			if _, routed, err := c.publish("", queue, text, nil); err != nil || !routed {
				t.Fatal(routed, err)
			}
		}
		awaitLife(t, b, goOn().ID)
		if _, err := c.ch.TxCommit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		reader := dial(t, b)
		if d := reader.eventually("q"); string(d.Body) != body {
			t.Errorf("got %q", d.Body)
		}
		if d := reader.eventually("other"); string(d.Body) != "other" {
			t.Errorf("got %q", d.Body)
		}
	}
}
