package load

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// stampBytes is the head of every body: publisher, number, time of sending.
const stampBytes = 20

// stamp writes the head of a message's body.
func stamp(body []byte, publisher, number int, sent time.Duration) {
	binary.BigEndian.PutUint32(body, uint32(publisher))
	binary.BigEndian.PutUint64(body[4:], uint64(number))
	binary.BigEndian.PutUint64(body[12:], uint64(sent))
}

func readStamp(body []byte) (publisher, number int, sent time.Duration, err error) {
	if len(body) < stampBytes {
		return 0, 0, 0, errors.New("a message of somebody else")
	}
	return int(binary.BigEndian.Uint32(body)), int(binary.BigEndian.Uint64(body[4:])),
		time.Duration(binary.BigEndian.Uint64(body[12:])), nil
}

// What is known about one message.
const (
	wasConfirmed = 1 << iota
	wasReceived
)

// books keeps account of the messages of one publisher. Numbers begin with 0.
type books struct {
	mu                    sync.Mutex
	state                 []byte
	confirmed, received   int // messages, each counted once
	open                  int // confirmed and not received
	refused, redelivered  int
	duplicates, surprises int // second deliveries without the flag; messages nobody sent
}

// send opens the next message and returns its number.
func (b *books) send() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = append(b.state, 0)
	return len(b.state) - 1
}

func (b *books) confirm(number int, taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !taken {
		b.refused++
		return
	}
	b.confirmed++
	b.state[number] |= wasConfirmed
	if b.state[number]&wasReceived == 0 {
		b.open++
	}
}

// receive returns whether this is the first delivery.
func (b *books) receive(number int, flagged bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if number >= len(b.state) {
		b.surprises++
		return false
	}
	if flagged {
		b.redelivered++
	}
	if b.state[number]&wasReceived != 0 {
		if !flagged {
			b.duplicates++
		}
		return false
	}
	b.state[number] |= wasReceived
	b.received++
	if b.state[number]&wasConfirmed != 0 {
		b.open--
	}
	return true
}

// totals are the sums over all publishers.
type totals struct {
	sent, confirmed, received, open, refused, redelivered, duplicates, surprises int
}

func (b *books) addTo(t *totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.sent += len(b.state)
	t.confirmed += b.confirmed
	t.received += b.received
	t.open += b.open
	t.refused += b.refused
	t.redelivered += b.redelivered
	t.duplicates += b.duplicates
	t.surprises += b.surprises
}
