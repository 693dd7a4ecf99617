package broker

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/warrenmq/warren/fsm"
)

// ReplyKind is the mesh's message kind that carries a direct reply.
const ReplyKind = 2

// MethodReply is the mesh's method that carries a direct reply, or the question
// whether its requester is there, and is answered (docs/formats/direct-reply.md).
const MethodReply uint8 = 0x31

// ReplyQueue is the queue a requester consumes from to get direct replies.
const ReplyQueue = "amq.rabbitmq.reply-to"

// replyPrefix begins the name of a requester, which responders publish to.
const replyPrefix = ReplyQueue + "."

// isReplyName tells the pseudo queue and the names of requesters from queues.
func isReplyName(name string) bool {
	return strings.HasPrefix(name, ReplyQueue) && (len(name) == len(ReplyQueue) || name[len(ReplyQueue)] == '.')
}

// replySecretBytes is how much of a token cannot be guessed.
const replySecretBytes = 16

// replyToken names one requester in the cluster.
type replyToken struct {
	origin fsm.Origin // its node's process
	number uint64     // of the consumer within it
	secret [replySecretBytes]byte
}

const replyVersion = 1

// name is the queue name of the requester: what its messages carry as reply-to.
func (t *replyToken) name() string {
	b := []byte{replyVersion}
	b = binary.AppendUvarint(b, uint64(t.origin.Node))
	b = binary.AppendUvarint(b, t.origin.Incarnation)
	b = binary.AppendUvarint(b, t.number)
	b = append(b, t.secret[:]...)
	return replyPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// parseReplyName reads what name makes; ok is false for anything else.
func parseReplyName(name string) (t replyToken, ok bool) {
	text, ok := strings.CutPrefix(name, replyPrefix)
	if !ok {
		return t, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) == 0 || b[0] != replyVersion {
		return t, false
	}
	r := replyReader{b: b[1:]}
	node := r.uvarint()
	t.origin.Incarnation = r.uvarint()
	t.number = r.uvarint()
	if r.bad || node > 1<<32-1 || len(r.b) != replySecretBytes {
		return t, false
	}
	t.origin.Node = uint32(node)
	copy(t.secret[:], r.b)
	return t, true
}

// directReply is a message for a requester, or with probe set the question
// whether it is there.
type directReply struct {
	probe            bool
	vhost, name      string // the publisher's vhost; the requester's name
	properties, body []byte
}

// encode returns the form for the way to another node.
func (m *directReply) encode() []byte {
	b := make([]byte, 0, 16+len(m.vhost)+len(m.name)+len(m.properties)+len(m.body))
	probe := byte(0)
	if m.probe {
		probe = 1
	}
	b = append(b, replyVersion, probe)
	for _, s := range []string{m.vhost, m.name} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(len(m.properties)))
	b = append(b, m.properties...)
	return append(b, m.body...)
}

var errReplyForm = errors.New("broker: malformed direct reply")

// decodeDirectReply reads what encode made; the result aliases b.
func decodeDirectReply(b []byte) (*directReply, error) {
	if len(b) < 2 || b[0] != replyVersion || b[1] > 1 {
		return nil, errReplyForm
	}
	m := &directReply{probe: b[1] == 1}
	r := replyReader{b: b[2:]}
	m.vhost, m.name = string(r.bytes()), string(r.bytes())
	m.properties = r.bytes()
	m.body = r.b
	if r.bad {
		return nil, errReplyForm
	}
	return m, nil
}

// replyReader takes fields from the front of b.
type replyReader struct {
	b   []byte
	bad bool
}

func (r *replyReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *replyReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
