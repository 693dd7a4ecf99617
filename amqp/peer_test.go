package amqp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"testing"
	"time"

	rabbit "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/amqp"
)

// A peer is the server end of a connection, scripted by a test. Its methods are
// called by one goroutine and return the first error they meet.
type peer struct {
	conn net.Conn
	in   *amqp.FrameReader
}

// method reads frames up to the next method and returns it with its channel.
func (p *peer) method() (uint16, amqp.Method, error) {
	for {
		f, err := p.in.Next()
		if err != nil {
			return 0, nil, err
		}
		if f.Type == amqp.FrameHeartbeat {
			continue
		}
		if f.Type != amqp.FrameMethod {
			return 0, nil, fmt.Errorf("frame of type %d instead of a method", f.Type)
		}
		m, err := amqp.Decode(f.Payload)
		return f.Channel, m, err
	}
}

// expect reads a method of the same type as want and stores it there.
func (p *peer) expect(want amqp.Method) error {
	_, got, err := p.method()
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", want.Name(), err)
	}
	if got.ID() != want.ID() {
		return fmt.Errorf("got %s instead of %s", got.Name(), want.Name())
	}
	reflect.ValueOf(want).Elem().Set(reflect.ValueOf(got).Elem())
	return nil
}

func (p *peer) send(channel uint16, methods ...amqp.Method) error {
	var out []byte
	for _, m := range methods {
		out = amqp.AppendMethodFrame(out, channel, m)
	}
	_, err := p.conn.Write(out)
	return err
}

// content reads a header frame and its body.
func (p *peer) content() (amqp.RawProperties, []byte, error) {
	f, err := p.in.Next()
	if err != nil {
		return nil, nil, err
	}
	h, err := amqp.ParseContentHeader(f.Payload)
	if err != nil || f.Type != amqp.FrameHeader {
		return nil, nil, fmt.Errorf("frame of type %d instead of a header: %w", f.Type, err)
	}
	props, body := h.Properties.Clone(), []byte(nil)
	for uint64(len(body)) < h.BodySize {
		f, err := p.in.Next()
		if err != nil || f.Type != amqp.FrameBody {
			return nil, nil, fmt.Errorf("frame of type %d instead of a body: %w", f.Type, err)
		}
		body = append(body, f.Payload...)
	}
	return props, body, props.Validate()
}

const testFrameMax = 8192

func clientConfig() rabbit.Config {
	return rabbit.Config{SASL: []rabbit.Authentication{&rabbit.PlainAuth{}}, Locale: "en_US", Vhost: "/"}
}

// handshake takes a connection to the point where it is open.
func (p *peer) handshake(server amqp.Table) (start amqp.ConnectionStartOk, open amqp.ConnectionOpen, err error) {
	h, err := p.in.Header()
	if err != nil {
		return start, open, err
	}
	if kind := amqp.RecognizeHeader(h); !kind.Accepted() {
		return start, open, fmt.Errorf("header %s is %s", h, kind)
	}
	var tune amqp.ConnectionTuneOk
	err = errors.Join(
		p.send(0, &amqp.ConnectionStart{VersionMinor: 9, ServerProperties: server, Mechanisms: "AMQPLAIN PLAIN", Locales: "en_US"}),
		p.expect(&start),
		p.send(0, &amqp.ConnectionTune{ChannelMax: 2047, FrameMax: testFrameMax, Heartbeat: 60}),
		p.expect(&tune),
	)
	if err != nil {
		return start, open, err
	}
	p.in.SetMax(tune.FrameMax)
	return start, open, errors.Join(p.expect(&open), p.send(0, &amqp.ConnectionOpenOk{}))
}

// dial connects a real client to script, which runs until the connection is closed.
// The returned function closes the client and reports what script returned.
func dial(t *testing.T, config rabbit.Config, script func(*peer) error) (conn *rabbit.Connection, finish func()) {
	t.Helper()
	client, server := tcpPair(t)
	done := make(chan error, 1)
	go func() { // ends with the script, at the latest when finish closes the socket
		defer func() { _ = server.Close() }()
		done <- script(&peer{conn: server, in: amqp.NewFrameReader(server)})
	}()
	conn, err := rabbit.Open(client, config)
	if err != nil {
		t.Fatalf("client: %v (peer: %v)", err, <-done)
	}
	return conn, func() {
		t.Helper()
		if err := conn.Close(); err != nil && !errors.Is(err, rabbit.ErrClosed) {
			t.Errorf("close client: %v", err)
		}
		_ = client.Close()
		if err := <-done; err != nil {
			t.Errorf("peer: %v", err)
		}
	}
}

// tcpPair returns both ends of a connection on the loopback. A pipe would not do:
// it has no buffer, and both sides write at times without reading.
func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer func() { _ = l.Close() }()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	for _, c := range []net.Conn{client, server} {
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatalf("set deadline: %v", err)
		}
	}
	return client, server
}

func (p *peer) closeGracefully() error {
	return errors.Join(p.expect(new(amqp.ConnectionClose)), p.send(0, &amqp.ConnectionCloseOk{}))
}

// serve answers the methods of a client on one connection: declarations are
// recorded, publishes come back to the consumer whose tag is their routing key.
func serve(p *peer, seen *[]amqp.Method) error {
	if _, _, err := p.handshake(nil); err != nil {
		return err
	}
	tag := uint64(0)
	for {
		channel, m, err := p.method()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		*seen = append(*seen, m)
		var reply amqp.Method
		switch m := m.(type) {
		case *amqp.ConnectionClose:
			return p.send(0, &amqp.ConnectionCloseOk{})
		case *amqp.ChannelOpen:
			reply = &amqp.ChannelOpenOk{}
		case *amqp.ChannelClose:
			reply = &amqp.ChannelCloseOk{}
		case *amqp.ExchangeDeclare:
			reply = &amqp.ExchangeDeclareOk{}
		case *amqp.ExchangeDelete:
			reply = &amqp.ExchangeDeleteOk{}
		case *amqp.ExchangeBind:
			reply = &amqp.ExchangeBindOk{}
		case *amqp.ExchangeUnbind:
			reply = &amqp.ExchangeUnbindOk{}
		case *amqp.QueueDeclare:
			reply = &amqp.QueueDeclareOk{Queue: m.Queue, MessageCount: 7, ConsumerCount: 8}
		case *amqp.QueueBind:
			reply = &amqp.QueueBindOk{}
		case *amqp.QueueUnbind:
			reply = &amqp.QueueUnbindOk{}
		case *amqp.QueuePurge:
			reply = &amqp.QueuePurgeOk{MessageCount: 9}
		case *amqp.QueueDelete:
			reply = &amqp.QueueDeleteOk{MessageCount: 10}
		case *amqp.BasicQos:
			reply = &amqp.BasicQosOk{}
		case *amqp.BasicConsume:
			reply = &amqp.BasicConsumeOk{ConsumerTag: m.ConsumerTag}
		case *amqp.BasicCancel:
			reply = &amqp.BasicCancelOk{ConsumerTag: m.ConsumerTag}
		case *amqp.BasicRecover:
			reply = &amqp.BasicRecoverOk{}
		case *amqp.BasicGet:
			reply = &amqp.BasicGetEmpty{}
		case *amqp.ConfirmSelect:
			reply = &amqp.ConfirmSelectOk{}
		case *amqp.TxSelect:
			reply = &amqp.TxSelectOk{}
		case *amqp.TxCommit:
			reply = &amqp.TxCommitOk{}
		case *amqp.TxRollback:
			reply = &amqp.TxRollbackOk{}
		case *amqp.BasicPublish:
			tag++
			if err := p.bounce(channel, tag, m); err != nil {
				return err
			}
			continue
		default:
			continue // acknowledgements have no answer
		}
		if info, _ := m.ID().Info(); !info.Accepts(reply.ID()) {
			return fmt.Errorf("%s does not accept %s", m.Name(), reply.Name())
		}
		if err := p.send(channel, reply); err != nil {
			return err
		}
	}
}

// bounce reads a publish's content and sends it back: as a return if the publish was
// mandatory, otherwise as a delivery whose properties went through both forms.
func (p *peer) bounce(channel uint16, tag uint64, m *amqp.BasicPublish) error {
	raw, body, err := p.content()
	if err != nil {
		return err
	}
	rewritten, err := amqp.Rewrite(raw, func(*amqp.Properties) {})
	if err != nil || !bytes.Equal(rewritten, raw) {
		return fmt.Errorf("rewriting %x gave %x: %w", raw, rewritten, err)
	}
	var out []byte
	if m.Mandatory {
		out = amqp.AppendMethodFrame(out, channel, &amqp.BasicReturn{
			ReplyCode: amqp.NoRoute, ReplyText: amqp.ReplyName(amqp.NoRoute), Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		})
	} else {
		out = amqp.AppendMethodFrame(out, channel, &amqp.BasicDeliver{
			ConsumerTag: m.RoutingKey, DeliveryTag: tag, Redelivered: true, Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		})
	}
	out = amqp.AppendContent(out, channel, amqp.ClassBasic, rewritten, body, testFrameMax)
	out = amqp.AppendMethodFrame(out, channel, &amqp.BasicAck{DeliveryTag: tag})
	_, err = p.conn.Write(out)
	return err
}
