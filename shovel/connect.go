package shovel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// connectTime bounds the way from the dial of a URI to an open channel.
	connectTime = 30 * time.Second
	// heartbeat is asked for where a URI names none.
	heartbeat = 10 * time.Second
	// closeTime bounds how long a connection may take to close in order.
	closeTime = 2 * time.Second
)

// link is an open connection with one channel.
type link struct {
	uri  URI
	user string
	raw  *throttled
	conn *amqp.Connection
	ch   *amqp.Channel
	// closed has the error of the channel or the connection, whichever ends first.
	closed chan *amqp.Error
	// blocked: the broker has said that it takes nothing, and reads no more after the next message. turned has one element after a change.
	blocked atomic.Bool
	turned  chan struct{}
}

// connect opens one of the URIs, in whatever order. It ends with ctx, the link does not.
func (w *Worker) connect(ctx context.Context, uris []URI, role string, budget int64) (*link, error) {
	var errs []error
	for _, i := range rand.Perm(len(uris)) {
		l, err := w.open(ctx, uris[i], role, budget)
		if err == nil {
			return l, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", uris[i], err))
	}
	return nil, errors.Join(errs...)
}

func (w *Worker) open(ctx context.Context, u URI, role string, budget int64) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conn, cfg, user, err := w.reach(ctx, u)
	if err != nil {
		return nil, err
	}
	cfg.FrameSize = 128 << 10
	cfg.ChannelMax = 8
	cfg.Locale = "en_US"
	cfg.Properties = amqp.NewConnectionProperties()
	cfg.Properties.SetClientConnectionName("Shovel " + w.def.Name + " (" + role + ")")
	l := &link{uri: u, user: user, raw: newThrottled(conn, budget, w.cfg.MessageMax), turned: make(chan struct{}, 1)}
	stop := context.AfterFunc(ctx, func() { _ = l.raw.Close() })
	defer stop()
	if l.conn, err = amqp.Open(l.raw, cfg); err != nil {
		return nil, errors.Join(err, ctx.Err(), ignoreClosed(l.raw.Close()))
	}
	if l.ch, err = l.conn.Channel(); err != nil {
		return nil, errors.Join(err, ctx.Err(), ignoreClosed(l.raw.Close()))
	}
	l.closed = l.ch.NotifyClose(make(chan *amqp.Error, 1))
	if !stop() {
		return nil, ctx.Err() // it is being closed
	}
	return l, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// reach dials a URI, and says how to log in there.
func (w *Worker) reach(ctx context.Context, u URI) (net.Conn, amqp.Config, string, error) {
	if u.Local {
		user, vhost := u.User, u.VHost
		if user == "" {
			user = w.def.User
		}
		if vhost == "" {
			vhost = w.def.VHost
		}
		conn, sasl, err := w.cfg.Local(ctx, user)
		return conn, amqp.Config{SASL: sasl, Vhost: vhost}, user, err
	}
	at, err := amqp.ParseURI(u.raw)
	if err != nil {
		return nil, amqp.Config{}, "", err
	}
	cfg := amqp.Config{SASL: []amqp.Authentication{at.PlainAuth()}, Vhost: at.Vhost, Heartbeat: u.Heartbeat}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(at.Host, strconv.Itoa(at.Port)))
	if err != nil || at.Scheme != "amqps" {
		return conn, cfg, at.Username, err
	}
	secured, err := secure(ctx, conn, &at, u.Unverified)
	if err != nil {
		return nil, cfg, "", errors.Join(err, conn.Close())
	}
	if len(at.AuthMechanism) > 0 && at.AuthMechanism[0] == "external" {
		cfg.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
	}
	return secured, cfg, at.Username, nil
}

// secure begins TLS as a URI wants it.
func secure(ctx context.Context, conn net.Conn, at *amqp.URI, unverified bool) (net.Conn, error) {
	cfg := &tls.Config{ServerName: at.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: unverified} //nolint:gosec // verify=verify_none asks for it
	if at.ServerName != "" {
		cfg.ServerName = at.ServerName
	}
	if at.CACertFile != "" {
		pem, err := readFile(at.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("cacertfile: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("cacertfile has no certificate")
		}
	}
	if at.CertFile != "" || at.KeyFile != "" {
		pair, err := keyPair(at.CertFile, at.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certfile, keyfile: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	c := tls.Client(conn, cfg)
	return c, c.HandshakeContext(ctx)
}

// fileMax bounds the files that a URI names, which need not be what they should be.
const fileMax = 1 << 20

// readFile reads a file of certificates or a key.
func readFile(name string) ([]byte, error) {
	about, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !about.Mode().IsRegular() || about.Size() > fileMax {
		return nil, fmt.Errorf("%s is no file of up to %d bytes", name, fileMax)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, fileMax))
}

func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// close closes the connection in order, or after closeTime in any case.
func (l *link) close() {
	t := time.AfterFunc(closeTime, func() { _ = l.raw.Close() })
	defer t.Stop()
	l.raw.open()
	_ = l.conn.Close() // what has been sent before is what counts
	_ = l.raw.Close()
}

// why is the broker's reason for the end of the link where there is one, else err.
func (l *link) why(err error) error {
	patience := time.Duration(0)
	if errors.Is(err, amqp.ErrClosed) {
		patience = time.Second // the library is about to say so
	}
	select {
	case e := <-l.closed:
		if e != nil {
			return e
		}
	case <-time.After(patience):
	}
	return err
}

// reason is why the link has ended; nil: in order.
func reason(e *amqp.Error) error {
	if e == nil {
		return errors.New("the connection has ended")
	}
	return e
}
