package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// timeoutReply bounds every wait.
const timeoutReply = 30 * time.Second

// stage does things to a cluster until one fails. Then it does nothing any more, and err says why.
type stage struct {
	ctx    context.Context
	c      *cluster.Cluster
	prefix string // of all names
	conn   *amqp.Connection
	ch     *amqp.Channel // with confirms
	err    error
	wrong  []error // what Check found
}

func open(ctx context.Context, c *cluster.Cluster, node int, prefix string) *stage {
	s := &stage{ctx: ctx, c: c, prefix: prefix}
	s.conn, s.ch = s.dial(c.Node(node).URL())
	return s
}

func (s *stage) dial(url string) (conn *amqp.Connection, ch *amqp.Channel) {
	if s.err != nil {
		return nil, nil
	}
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err == nil {
		ch, err = conn.Channel()
	}
	if err == nil {
		err = ch.Confirm(false)
	}
	s.failed("connect", err)
	return conn, ch
}

func (s *stage) close() {
	if s.conn != nil {
		_ = s.conn.Close() // the nodes may have ended
	}
}

// failed notes the first error.
func (s *stage) failed(what string, err error) bool {
	if s.err == nil && err != nil {
		s.err = fmt.Errorf("%s: %w", what, err)
	}
	return s.err != nil
}

func (s *stage) queue(name string, args amqp.Table) {
	if s.err != nil {
		return
	}
	_, err := s.ch.QueueDeclare(s.prefix+name, true, false, false, false, args)
	s.failed("declare "+name, err)
}

func (s *stage) exchange(name, kind string, args amqp.Table) {
	if s.err != nil {
		return
	}
	s.failed("declare "+name, s.ch.ExchangeDeclare(s.prefix+name, kind, true, false, false, false, args))
}

func (s *stage) bind(queue, key, exchange string) {
	if s.err != nil {
		return
	}
	s.failed("bind "+queue, s.ch.QueueBind(s.prefix+queue, key, s.prefix+exchange, false, nil))
}

// deadTo are the arguments of a queue whose dead letters go to another.
func (s *stage) deadTo(queue string, more amqp.Table) amqp.Table {
	t := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.prefix + queue}
	maps.Copy(t, more)
	return t
}

func text(body string) amqp.Publishing {
	return amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent}
}

// publish publishes and waits for the confirm.
func (s *stage) publish(exchange, key string, m amqp.Publishing) {
	if s.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeoutReply)
	defer cancel()
	c, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, m)
	ok := false
	if err == nil {
		ok, err = c.WaitContext(ctx)
	}
	if err == nil && !ok {
		err = errors.New("refused")
	}
	s.failed(fmt.Sprintf("publish %.40q to %q %q", m.Body, exchange, key), err)
}

// fill publishes bodies to a queue.
func (s *stage) fill(queue string, bodies ...string) {
	for _, b := range bodies {
		s.publish("", s.prefix+queue, text(b))
	}
}

// get takes a message, which must come within the time.
func (s *stage) get(queue string) (d amqp.Delivery) {
	if s.err != nil {
		return d
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeoutReply)
	defer cancel()
	err := cluster.Poll(ctx, func() (ok bool, err error) {
		d, ok, err = s.ch.Get(s.prefix+queue, false)
		return ok, err
	})
	s.failed("get from "+queue, err)
	return d
}

// settle acks messages of a queue, or returns them, or gives them up.
func (s *stage) settle(queue string, n int, how func(amqp.Delivery) error) {
	for range n {
		if d := s.get(queue); s.err == nil {
			s.failed("settle of "+queue, how(d))
		}
	}
}

func ack(d amqp.Delivery) error     { return d.Ack(false) }
func reject(d amqp.Delivery) error  { return d.Reject(false) }
func requeue(d amqp.Delivery) error { return d.Reject(true) } // which counts, as a nack does not

// until waits for what the nodes say of a queue.
func (s *stage) until(queue, what string, ok func(cluster.Queue) bool) {
	if s.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeoutReply)
	defer cancel()
	var q cluster.Queue
	err := cluster.Poll(ctx, func() (bool, error) {
		leader, err := s.c.Leader(ctx, s.prefix+queue)
		if err != nil {
			return false, err
		}
		all, err := leader.Queues(ctx)
		for i := range all {
			if all[i].VHost == "/" && all[i].Name == s.prefix+queue {
				q = all[i]
			}
		}
		return err == nil && ok(q), nil
	})
	if err != nil {
		s.failed(queue+" "+what, fmt.Errorf("%w: %+v", err, q))
	}
}

// http sends a request to the management API as guest and returns the answer.
func (s *stage) http(method, path string, body any) (answer []byte) {
	if s.err != nil {
		return nil
	}
	var in io.Reader = http.NoBody
	if body != nil {
		raw, err := json.Marshal(body)
		if s.failed(path, err) {
			return nil
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(s.ctx, method, s.c.Node(0).HTTP()+"/api/"+path, in)
	if s.failed(path, err) {
		return nil
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	if s.failed(path, err) {
		return nil
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	s.failed(method+" "+path, err)
	return answer
}

// delayedIn waits until so many messages of a queue wait for their time.
func (s *stage) delayedIn(queue string, n int) {
	var q struct {
		Delayed int `json:"messages_delayed"`
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeoutReply)
	defer cancel()
	_ = cluster.Poll(ctx, func() (bool, error) { // figures may be some seconds old
		if answer := s.http("GET", "queues/%2F/"+s.prefix+queue, nil); s.err == nil {
			s.failed(queue, json.Unmarshal(answer, &q))
		}
		return s.err != nil || q.Delayed == n, nil
	})
	s.is(queue+": what waits for its time", q.Delayed, n)
}

// is notes a difference.
func (s *stage) is(what string, got, want any) {
	if s.err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		s.wrong = append(s.wrong, fmt.Errorf("%s: got %v, want %v", what, got, want))
	}
}

// holds takes everything out of a queue and compares bodies; they must come within the time, and nothing else.
func (s *stage) holds(queue string, bodies ...string) {
	var got []string
	for range bodies {
		if d := s.get(queue); s.err == nil {
			got = append(got, string(d.Body))
			s.failed("ack", d.Ack(false))
		}
	}
	s.is(queue, got, bodies)
	s.empty(queue)
}

// empty checks that nothing is ready in a queue.
func (s *stage) empty(queue string) {
	if s.err != nil {
		return
	}
	d, ok, err := s.ch.Get(s.prefix+queue, true)
	if !s.failed("get from "+queue, err) && ok {
		s.is("what else is in "+queue, string(d.Body), "nothing")
	}
}

func (s *stage) result() error { return errors.Join(append(s.wrong, s.err)...) }
