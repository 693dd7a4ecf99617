package shovel

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/amqp"
)

const toAndFro = `{"src-uri":"amqp://src@","dest-uri":"amqp://dst@","src-queue":"q","dest-queue":"d","reconnect-delay":1}`

// TestSourceEnded: the library closes the deliveries of a consumer that the broker has cancelled, and the channel stays open.
func TestSourceEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forwarder{src: &link{closed: make(chan *client.Error, 1)}, cancelled: make(chan string, 4)}
		f.cancelled <- "shovel-s-1"
		if err := f.sourceEnded(); !errors.Is(err, errSource) || !errors.Is(err, errQueueGone) {
			t.Error("cancelled:", err)
		}
		f.src.closed <- &client.Error{Code: 541, Reason: "of its own"}
		close(f.cancelled)
		if err := f.sourceEnded(); !errors.Is(err, errSource) || !strings.Contains(err.Error(), "of its own") {
			t.Error("closed:", err)
		}
	})
}

// TestDestinationStopsReading: a write that hangs ends when the heartbeats are missing, and the shovel connects anew.
func TestDestinationStopsReading(t *testing.T) {
	// In real time: what waits for a mutex, as the library does here, holds up that of a bubble.
	w := newWorld(1, 10)
	stuck := make(chan struct{})
	w.heartbeat = 1
	w.script = func(*peer, uint64, *amqp.BasicPublish, amqp.RawProperties, []byte) {
		w.mu.Unlock()
		<-stuck
		w.mu.Lock()
	}
	cfg, again := w.config(), make(chan struct{}, 10)
	dials := 0
	cfg.Local = func(ctx context.Context, user string) (net.Conn, []client.Authentication, error) {
		if user == "dst" {
			if dials++; dials > 1 {
				again <- struct{}{}
			}
		}
		return w.dial(ctx, user)
	}
	d, err := Parse([]byte(toAndFro))
	if err != nil {
		t.Fatal(err)
	}
	worker := Start(cfg, Job{VHost: "/", Name: "s", Since: 1, Definition: d})
	select {
	case <-again:
	case <-time.After(30 * time.Second):
		t.Fatal("it still waits for a destination that says nothing")
	}
	worker.Stop()
	close(stuck)
	w.serving.Wait()
}

// TestBlocked: what a destination has blocked is not written to, so that the write does not hang, and goes on when it is let.
func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, 4)
		published := uint64(0)
		var dst *peer
		w.script = func(p *peer, seq uint64, _ *amqp.BasicPublish, _ amqp.RawProperties, body []byte) {
			if dst, published = p, seq; seq == 1 {
				p.send(0, &amqp.ConnectionBlocked{Reason: "low on memory"})
			}
			w.arrived[string(body)] = true
			p.send(1, &amqp.BasicAck{DeliveryTag: seq})
		}
		worker := w.start(t, toAndFro)
		synctest.Wait()
		w.mu.Lock()
		before := published
		w.total += 4
		w.ready = append(w.ready, "later-1", "later-2", "later-3", "later-4")
		w.source.deliver()
		w.mu.Unlock()
		time.Sleep(10 * time.Second) // of the bubble
		w.mu.Lock()
		if published != before || !worker.Status().Blocked {
			t.Errorf("%d published, then %d, %+v", before, published, worker.Status())
		}
		dst.send(0, &amqp.ConnectionUnblocked{})
		w.mu.Unlock()
		select {
		case <-w.done:
		case <-time.After(10 * time.Second):
			t.Errorf("%+v", worker.Status())
		}
		worker.Stop()
		w.serving.Wait()
	})
}

// TestNonsense: whatever the destination says, the shovel ends when it is stopped.
func TestNonsense(t *testing.T) {
	for name, say := range map[string][]amqp.Method{
		"answers nobody has asked for": {&amqp.QueueDeclareOk{Queue: "d"}, &amqp.QueueDeclareOk{Queue: "d"}},
		"confirms for ever":            {&amqp.BasicAck{DeliveryTag: 1 << 62, Multiple: true}},
		"refuses for ever":             {&amqp.BasicNack{DeliveryTag: 1 << 62, Multiple: true}},
		"cancels":                      {&amqp.BasicCancel{ConsumerTag: "x"}, &amqp.BasicCancel{ConsumerTag: "x"}, &amqp.BasicCancel{ConsumerTag: "x"}},
		"ends a channel":               {&amqp.ChannelClose{ReplyCode: 404, ReplyText: "no"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1, 10)
				w.heartbeat = 0 // which would notice, too
				w.script = func(p *peer, _ uint64, _ *amqp.BasicPublish, _ amqp.RawProperties, _ []byte) { p.send(1, say...) }
				worker := w.start(t, toAndFro)
				time.Sleep(time.Minute) // of the bubble
				worker.Stop()
				w.serving.Wait()
				if len(w.gone) > 0 {
					t.Errorf("%d messages are acknowledged", len(w.gone))
				}
			})
		})
	}
}

// TestSilentAddress: one that takes a connection and says nothing does not use up the time of the others.
func TestSilentAddress(t *testing.T) {
	for range 10 { // they are tried in whatever order
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, 1)
			cfg, dial := w.config(), w.dial
			var silent []net.Conn
			cfg.Local = func(ctx context.Context, user string) (net.Conn, []client.Authentication, error) {
				if user != "silent" {
					return dial(ctx, user)
				}
				ours, theirs := net.Pipe()
				silent = append(silent, theirs)
				return ours, []client.Authentication{&client.PlainAuth{}}, nil
			}
			d, err := Parse([]byte(strings.Replace(toAndFro, `"amqp://dst@"`, `["amqp://silent@","amqp://dst@"]`, 1)))
			if err != nil {
				t.Fatal(err)
			}
			worker := Start(cfg, Job{VHost: "/", Name: "s", Since: 1, Definition: d})
			select {
			case <-w.done:
			case <-time.After(connectTime + time.Second):
				t.Errorf("%+v", worker.Status())
			}
			worker.Stop()
			w.serving.Wait()
			for _, c := range silent {
				c.Close()
			}
		})
	}
}

// TestReturned: a return that fits several messages stands for the one that is the same, or for all of them.
func TestReturned(t *testing.T) {
	d, err := Parse([]byte(toAndFro))
	if err != nil {
		t.Fatal(err)
	}
	letters := func() (*forwarder, []*letter) {
		list := []*letter{
			{Delivery: client.Delivery{Body: []byte("x"), ReplyTo: "a"}},
			{Delivery: client.Delivery{Body: []byte("x"), ReplyTo: "b"}},
			{Delivery: client.Delivery{Body: []byte("y"), ReplyTo: "b"}},
		}
		link := &link{}
		return &forwarder{w: &Worker{def: Job{Definition: d}}, src: link, dst: link, sent: list}, list
	}
	for name, c := range map[string]struct {
		back client.Return
		want string // of each message
		fail bool
	}{
		"the same":          {back: client.Return{RoutingKey: "d", Body: []byte("x"), ReplyTo: "b"}, want: "-r-"},
		"changed":           {back: client.Return{RoutingKey: "d", Body: []byte("x"), ReplyTo: "b", Headers: client.Table{"routed-by": "n"}}, want: "rr-"},
		"of nobody":         {back: client.Return{RoutingKey: "d", Body: []byte("z")}, want: "---", fail: true},
		"with another key":  {back: client.Return{RoutingKey: "e", Body: []byte("y"), ReplyTo: "b"}, want: "---", fail: true},
		"an empty table":    {back: client.Return{RoutingKey: "d", Body: []byte("y"), ReplyTo: "b", Headers: client.Table{}}, want: "--r"},
		"but for its table": {back: client.Return{RoutingKey: "d", Body: []byte("y"), ReplyTo: "b", Headers: client.Table{"k": int64(1)}}, want: "--r"},
	} {
		t.Run(name, func(t *testing.T) {
			f, list := letters()
			err := f.mark(&c.back)
			got := ""
			for _, l := range list {
				got += map[bool]string{true: "r", false: "-"}[l.returned]
			}
			if got != c.want || (err != nil) != c.fail || c.fail && !errors.Is(err, errDestination) {
				t.Errorf("%s, %v, want %s", got, err, c.want)
			}
		})
	}
}

// TestStreamKeepsItsConsumer: what another one would be sent does not begin where this one ends.
func TestStreamKeepsItsConsumer(t *testing.T) {
	d, err := Parse([]byte(toAndFro))
	if err != nil {
		t.Fatal(err)
	}
	f := newForwarder(&Worker{def: Job{Definition: d}, cfg: Config{Budget: 1 << 20}})
	f.pacing.current = prefetchFirst
	for i := range int64(100) {
		if err := f.pace(&client.Delivery{Headers: client.Table{headerStream: i}, Body: []byte("x")}); err != nil || f.former != nil {
			t.Fatal("another consumer:", err)
		}
	}
}

// TestFilesOfAURI: what is no file of a reasonable size is refused, before anything is read.
func TestFilesOfAURI(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, fileMax+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{os.DevNull, dir, large} {
		at := client.URI{Host: "localhost", CACertFile: name}
		if _, err := secure(t.Context(), nil, &at, false); err == nil || !strings.Contains(err.Error(), "is no file of up to") {
			t.Errorf("cacertfile %s: %v", name, err)
		}
		at = client.URI{Host: "localhost", CertFile: name, KeyFile: name}
		if _, err := secure(t.Context(), nil, &at, false); err == nil || !strings.Contains(err.Error(), "is no file of up to") {
			t.Errorf("certfile %s: %v", name, err)
		}
	}
}
