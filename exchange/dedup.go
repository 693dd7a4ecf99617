package exchange

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/warrenmq/warren/amqp"
)

// HeaderDedup carries the deduplication id of a message: a publisher that sends a message
// again, because it does not know what became of it, gives it the same one. The name is that of
// RabbitMQ's deduplication plugin.
const HeaderDedup = "x-deduplication-header"

// DedupID digests the deduplication id in a message's headers; the result is zero if there is
// none. An id is a text of one byte or more or an integer of any width; a text and an
// integer are never the same id. The error says, in RabbitMQ's notation, what is wrong with any
// other value.
func DedupID(headers amqp.Table) (id [16]byte, err error) {
	v, ok := headers.Get(HeaderDedup)
	if !ok {
		return id, nil
	}
	var room [256]byte
	b := room[:0]
	if n, ok := amqp.AsInt64(v); ok {
		b = binary.BigEndian.AppendUint64(append(b, 'i'), uint64(n))
	} else {
		b = append(b, 's')
		switch v := v.(type) {
		case string:
			b = append(b, v...)
		case []byte:
			b = append(b, v...)
		default:
			return id, fmt.Errorf("{unacceptable_type_in_header,%q,%s}", HeaderDedup, amqp.TypeName(v))
		}
		if len(b) == 1 {
			return id, fmt.Errorf("{unacceptable_value_in_header,%q,<<>>}", HeaderDedup)
		}
	}
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16]), nil
}
