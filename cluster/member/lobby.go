package member

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A lobby message is the magic, the length of the rest as four bytes, and JSON, which version 2
// seals. The version is in the magic. The first byte tells it from everything memberlist
// sends.
var (
	lobbyMagic  = []byte("warren-lobby/1\n")
	lobbySealed = []byte("warren-lobby/2\n") // of the same length
)

const (
	lobbyBytesMax = 64 << 10
	lobbyInfosMax = 64               // others told of in one message, and remembered
	lobbyFresh    = 5 * time.Second  // an info not heard again for so long is forgotten
	strangerEvery = 10 * time.Second // between lines of the log about nodes of other clusters
)

// lobbyMessage is question and answer alike: who speaks, and of whom it heard lately.
type lobbyMessage struct {
	Self   Info   `json:"self"`
	Others []Info `json:"others,omitempty"`
}

var errLobby = errors.New("malformed lobby message")

// encode writes a message, sealed if keys are given.
func (m *lobbyMessage) encode(keys *ring) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode a lobby message: %w", err)
	}
	if keys != nil {
		b := binary.BigEndian.AppendUint32(bytes.Clone(lobbySealed), uint32(len(body)+sealOverhead))
		return keys.appendSealed(b, body, lobbySealed), nil
	}
	b := binary.BigEndian.AppendUint32(bytes.Clone(lobbyMagic), uint32(len(body)))
	return append(b, body...), nil
}

// readLobby reads one message and tells whether it was sealed. Infos in it that cannot be used are left out; a Self
// that cannot is an error.
func readLobby(r io.Reader, keys *ring) (m *lobbyMessage, sealed bool, err error) {
	head := make([]byte, len(lobbyMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, false, fmt.Errorf("read a lobby message: %w", err)
	}
	sealed = bytes.HasPrefix(head, lobbySealed)
	switch {
	case !sealed && !bytes.HasPrefix(head, lobbyMagic):
		return nil, false, fmt.Errorf("%w: begins with %q", errLobby, head)
	case sealed && keys.mode == EncryptionOff:
		return nil, false, fmt.Errorf("%w: it is sealed, and gossip-encryption is off here", errLobby)
	case !sealed && keys.mode == EncryptionOn:
		return nil, false, fmt.Errorf("%w: it is not sealed", errLobby)
	}
	n := binary.BigEndian.Uint32(head[len(lobbyMagic):])
	if n > lobbyBytesMax {
		return nil, sealed, fmt.Errorf("%w: %d bytes announced", errLobby, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, sealed, fmt.Errorf("read a lobby message: %w", err)
	}
	if sealed {
		if body, err = keys.open(body, lobbySealed); err != nil {
			return nil, sealed, fmt.Errorf("%w: %w", errLobby, err)
		}
	}
	m, err = decodeLobby(body)
	return m, sealed, err
}

func decodeLobby(body []byte) (*lobbyMessage, error) {
	var m lobbyMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errLobby, err)
	}
	if err := m.Self.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errLobby, err)
	}
	kept := m.Others[:0]
	for _, o := range m.Others[:min(len(m.Others), lobbyInfosMax)] {
		if o.validate() == nil {
			kept = append(kept, o)
		}
	}
	m.Others = kept
	return &m, nil
}

// lobby remembers who was heard of lately. One mutex guards it.
type lobby struct {
	mu        sync.Mutex
	heard     map[NodeID]heard
	strangeAt time.Time // when a node of another cluster was last reported
}

// stranger calls report, unless it has done so lately.
func (l *lobby) stranger(report func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.strangeAt) > strangerEvery {
		l.strangeAt = now
		report()
	}
}

type heard struct {
	info   Info
	at     time.Time
	direct bool // spoke itself, not told of by others
}

// hear enters an info. Hearsay counts only where nothing was heard directly.
func (l *lobby) hear(i Info, direct bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.expire(now)
	old, known := l.heard[i.Node]
	switch {
	case known && (i.Boot < old.info.Boot || old.direct && !direct):
		return
	case !known && len(l.heard) >= lobbyInfosMax:
		return
	}
	l.heard[i.Node] = heard{i, now, direct}
}

func (l *lobby) expire(now time.Time) {
	for id, h := range l.heard {
		if now.Sub(h.at) > lobbyFresh {
			delete(l.heard, id)
		}
	}
}

// infos returns those heard of lately; direct leaves out hearsay.
func (l *lobby) infos(direct bool) []Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(time.Now())
	var out []Info
	for _, h := range l.heard {
		if h.direct || !direct {
			out = append(out, h.info)
		}
	}
	return out
}

// answerLobby is the port's lobby function.
func (g *Gossip) answerLobby(conn net.Conn, r *bufio.Reader) {
	m, sealed, err := readLobby(r, g.ring)
	if err != nil {
		g.log.Debug("a lobby question was not understood", "from", conn.RemoteAddr().String(), "err", err)
		return
	}
	g.heardLobby(m, conn.RemoteAddr())
	var keys *ring
	if sealed {
		keys = g.ring
	}
	b, err := g.lobbyMessage().encode(keys)
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		g.log.Debug("a lobby question was not answered", "from", conn.RemoteAddr().String(), "err", err)
	}
}

func (g *Gossip) lobbyMessage() *lobbyMessage {
	return &lobbyMessage{Self: g.self(), Others: g.lobby.infos(true)}
}

// heardLobby takes a message that came from an address. Of a cluster with another name nothing is taken: an address that was another
// node's an hour ago may be its now, and a virgin node enters the first cluster that it hears of.
func (g *Gossip) heardLobby(m *lobbyMessage, from net.Addr) {
	self := g.self()
	for i, info := range append([]Info{m.Self}, m.Others...) {
		strange := info.ClusterName != "" && self.ClusterName != "" && info.ClusterName != self.ClusterName
		if i == 0 {
			info = info.seenAt(hostOf(from))
			if strange {
				g.lobby.stranger(func() {
					g.log.Warn("a node of another cluster was not heard", "cluster_name", info.ClusterName, "node", info.Node, "from", from.String(), "ours", self.ClusterName)
				})
			}
		}
		if info.Node != self.Node && !strange {
			g.lobby.hear(info, i == 0)
			g.book.hear(info)
		}
	}
	g.notify()
}

// askLobby asks the node at addr who is there.
func (g *Gossip) askLobby(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // wakes a blocked read
	defer func() {
		stop()
		_ = conn.Close() // the answer is in or nothing is
	}()
	var keys *ring
	if g.ring.mode == EncryptionOn {
		keys = g.ring
	}
	b, err := g.lobbyMessage().encode(keys)
	if err != nil {
		return err
	}
	if _, err := conn.Write(b); err != nil {
		return err
	}
	m, _, err := readLobby(conn, g.ring)
	if err != nil {
		return err
	}
	g.heardLobby(m, conn.RemoteAddr())
	return nil
}
