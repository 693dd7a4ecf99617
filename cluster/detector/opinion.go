package detector

import (
	"errors"
	"fmt"

	"github.com/warrenmq/warren/transport"
)

// MethodOpinion is the transport method number under which nodes ask each other
// whether they hear a third. See docs/formats/cluster-calls.md.
const MethodOpinion uint8 = 0x20

const (
	opinionVersion = 1
	nodeIDBytesMax = 512
)

var errOpinion = errors.New("malformed opinion message")

// opinion is one node's view of another.
type opinion uint8

const (
	opinionNone     opinion = 0 // does not watch it
	opinionHeard    opinion = 1
	opinionNotHeard opinion = 2
)

func encodeQuestion(node transport.NodeID) []byte {
	return append([]byte{opinionVersion}, node...)
}

func decodeQuestion(b []byte) (transport.NodeID, error) {
	if len(b) < 2 || len(b) > 1+nodeIDBytesMax {
		return "", fmt.Errorf("%w: question of %d bytes", errOpinion, len(b))
	}
	if b[0] != opinionVersion {
		return "", fmt.Errorf("%w: question version %d", errOpinion, b[0])
	}
	return transport.NodeID(b[1:]), nil
}

func encodeOpinion(o opinion) []byte { return []byte{opinionVersion, byte(o)} }

func decodeOpinion(b []byte) (opinion, error) {
	if len(b) != 2 || b[0] != opinionVersion || b[1] > byte(opinionNotHeard) {
		return opinionNone, fmt.Errorf("%w: answer %x", errOpinion, b[:min(len(b), 8)])
	}
	return opinion(b[1]), nil
}
