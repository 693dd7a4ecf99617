package detector

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/warrenmq/warren/transport"
)

// MethodOpinion is the transport method number under which nodes ask each other
// whether they hear a third. See docs/formats/cluster-calls.md.
const MethodOpinion uint8 = 0x20

// MethodGoodbye is the one under which a process says that it ends.
const MethodGoodbye uint8 = 0x22

const (
	goodbyeVersion = 1
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

func encodeGoodbye(run uint64) []byte { return binary.AppendUvarint([]byte{goodbyeVersion}, run) }

func decodeGoodbye(b []byte) (run uint64, err error) {
	if len(b) < 2 || b[0] != goodbyeVersion {
		return 0, fmt.Errorf("%w: goodbye %x", errOpinion, b[:min(len(b), 8)])
	}
	run, n := binary.Uvarint(b[1:])
	if n != len(b)-1 || run == 0 {
		return 0, fmt.Errorf("%w: goodbye %x", errOpinion, b[:min(len(b), 8)])
	}
	return run, nil
}

func encodeOpinion(o opinion) []byte { return []byte{opinionVersion, byte(o)} }

func decodeOpinion(b []byte) (opinion, error) {
	if len(b) != 2 || b[0] != opinionVersion || b[1] > byte(opinionNotHeard) {
		return opinionNone, fmt.Errorf("%w: answer %x", errOpinion, b[:min(len(b), 8)])
	}
	return opinion(b[1]), nil
}
