package pki

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// timeoutShake bounds Shake.
const timeoutShake = 10 * time.Second

// Shake makes a connection on loopback and returns both ends' errors, after the server has sent a byte. With TLS 1.3 a client hears of
// a refusal behind its handshake only.
func Shake(server, client *tls.Config) (serverErr, clientErr error) {
	a, b, err := pair()
	if err != nil {
		err = fmt.Errorf("no connection: %w", err)
		return err, err
	}
	defer b.Close()
	done := make(chan error, 1)
	go func() {
		defer a.Close()
		s := tls.Server(a, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		done <- err
	}()
	c := tls.Client(b, client)
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	b.Close()
	return <-done, clientErr
}

// pair returns both ends of a connection that ends after timeoutShake.
func pair() (a, b net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if b, err = net.DialTimeout("tcp", l.Addr().String(), timeoutShake); err != nil {
		return nil, nil, err
	}
	if a, err = l.Accept(); err != nil {
		b.Close()
		return nil, nil, err
	}
	deadline := time.Now().Add(timeoutShake)
	_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline) // they fail on closed connections only
	return a, b, nil
}
