// Package dns is a small DNS server for tests: it serves the addresses of a headless service as Kubernetes does, and
// the ways in which that goes wrong.
package dns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Answer is what is said about a name.
type Answer struct {
	// Addrs are its A and AAAA records, in this order.
	Addrs []netip.Addr
	// TTL is theirs, in seconds.
	TTL uint32
	// Delay is waited before each answer.
	Delay time.Duration
	// Truncate sends no records over UDP: who asks has to come back over TCP.
	Truncate bool
	// Fail says that the server failed (SERVFAIL) in place of an answer, Silent says nothing.
	Fail, Silent bool
}

// Asked counts questions about a name.
type Asked struct{ UDP, TCP int }

// Server answers questions over UDP and TCP until Close. A name that was not Set does not exist (NXDOMAIN).
type Server struct {
	udp  net.PacketConn
	tcp  net.Listener
	work sync.WaitGroup
	done chan struct{}

	mu      sync.Mutex
	answers map[string]Answer
	asked   map[string]Asked
}

// Bounds of the server.
const (
	atOnceMax  = 256         // questions under way; others are dropped
	tcpTimeout = time.Minute // for a connection
)

// Listen serves on a port, UDP and TCP, of an IP address.
func Listen(ip string, port string) (*Server, error) {
	tcp, err := net.Listen("tcp", net.JoinHostPort(ip, port))
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve DNS: %w", err), tcp.Close())
	}
	s := &Server{udp: udp, tcp: tcp, done: make(chan struct{}), answers: map[string]Answer{}, asked: map[string]Asked{}}
	slots := make(chan struct{}, atOnceMax)
	s.work.Go(func() { s.serveUDP(slots) })
	s.work.Go(func() { s.serveTCP(slots) })
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.tcp.Addr().String() }

// Set replaces what is said about a name, without a final dot.
func (s *Server) Set(name string, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[canonical(name)] = a
}

// Remove makes a name one that does not exist.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.answers, canonical(name))
}

// Asked returns how often a name was asked for.
func (s *Server) Asked(name string) Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[canonical(name)]
}

func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

// Close ends it and waits.
func (s *Server) Close() error {
	close(s.done)
	err := errors.Join(s.udp.Close(), s.tcp.Close())
	s.work.Wait()
	return err
}

func (s *Server) serveUDP(slots chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		question := append([]byte(nil), buf[:n]...)
		s.each(slots, func() {
			if answer := s.answer(question, false); answer != nil {
				_, _ = s.udp.WriteTo(answer, from) // who asks asks again
			}
		})
	}
}

func (s *Server) serveTCP(slots chan struct{}) {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.each(slots, func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(tcpTimeout))
			for {
				var size [2]byte
				if _, err := io.ReadFull(conn, size[:]); err != nil {
					return
				}
				question := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(conn, question); err != nil {
					return
				}
				answer := s.answer(question, true)
				if answer == nil {
					return
				}
				if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
					return
				}
			}
		})
	}
}

// each runs f beside others, unless there are too many.
func (s *Server) each(slots chan struct{}, f func()) {
	select {
	case slots <- struct{}{}:
		s.work.Go(func() {
			defer func() { <-slots }()
			f()
		})
	default:
	}
}

// answer returns nil for what is not to be answered.
func (s *Server) answer(raw []byte, tcp bool) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(raw)
	if err != nil || head.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := canonical(q.Name.String())
	s.mu.Lock()
	a, known := s.answers[name]
	asked := s.asked[name]
	if tcp {
		asked.TCP++
	} else {
		asked.UDP++
	}
	s.asked[name] = asked
	s.mu.Unlock()
	select {
	case <-time.After(a.Delay):
	case <-s.done:
		return nil
	}
	if a.Silent {
		return nil
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, Authoritative: true, RecursionDesired: head.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	switch {
	case a.Fail:
		m.RCode = dnsmessage.RCodeServerFailure
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case a.Truncate && !tcp:
		m.Truncated = true
	default:
		m.Answers = records(q, a)
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// records are those of an answer that a question is about.
func records(q dnsmessage.Question, a Answer) (list []dnsmessage.Resource) {
	for _, addr := range a.Addrs {
		var body dnsmessage.ResourceBody
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			body = &dnsmessage.AResource{A: addr.As4()}
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
		default:
			continue
		}
		list = append(list, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: a.TTL}, Body: body})
	}
	return list
}
