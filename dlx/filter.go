package dlx

import (
	"fmt"
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// Bounds of a Filter, which may come into a queue's log.
const (
	filterListMax = 1000
	filterTextMax = 1 << 10
)

// Filter chooses messages by their newest death, by number and by properties. Conditions
// that are set must all hold; the zero Filter takes every message.
type Filter struct {
	Reasons []Reason
	Queue   string // in which the message died
	// DiedBefore and DiedAfter bound the time of death, machine time in ms, both
	// inclusive; 0: no bound. A message that never died does not meet a bound.
	DiedBefore, DiedAfter int64
	IDs                   []uint64 // numbers in the queue, ascending
	MessageIDs            []string // of the property message-id
	// Header is the name of a header that must have HeaderValue, in the form of
	// fmt.Sprint; "" for none.
	Header, HeaderValue string
	// Retried asks whether somebody has sent the message back before: see [Retried].
	Retried RetriedFilter
}

// RetriedFilter is what a filter wants of messages that were sent back before.
type RetriedFilter uint8

// The values of Filter.Retried.
const (
	RetriedOrNot RetriedFilter = iota
	OnlyRetried
	NeverRetried
)

// Validate says whether the filter can be used. The error is for people.
func (f *Filter) Validate() error {
	if len(f.Reasons) > filterListMax || len(f.IDs) > filterListMax || len(f.MessageIDs) > filterListMax {
		return fmt.Errorf("a filter has at most %d values of a kind", filterListMax)
	}
	for _, text := range append([]string{f.Queue, f.Header, f.HeaderValue}, f.MessageIDs...) {
		if len(text) > filterTextMax {
			return fmt.Errorf("a text of a filter has at most %d bytes", filterTextMax)
		}
	}
	if f.Retried > NeverRetried {
		return fmt.Errorf("a filter cannot ask for %d of retries", f.Retried)
	}
	if !slices.IsSorted(f.IDs) {
		return fmt.Errorf("the numbers of a filter are not ascending")
	}
	return nil
}

// Any reports whether the filter takes every message.
func (f *Filter) Any() bool { return !f.NeedsContent() && len(f.IDs) == 0 }

// NeedsContent reports whether the filter looks at more than a message's number.
func (f *Filter) NeedsContent() bool {
	return len(f.Reasons) > 0 || f.Queue != "" || f.DiedBefore != 0 || f.DiedAfter != 0 || len(f.MessageIDs) > 0 || f.Header != "" ||
		f.Retried != RetriedOrNot
}

// TakesID reports whether the number is among those asked for.
func (f *Filter) TakesID(id uint64) bool {
	if len(f.IDs) == 0 {
		return true
	}
	_, found := slices.BinarySearch(f.IDs, id)
	return found
}

// Takes reports whether the filter takes a message with this history, newest death first.
func (f *Filter) Takes(id uint64, deaths []Death, props amqp.RawProperties) bool {
	if !f.TakesID(id) || !f.takesDeath(deaths) || f.Retried != RetriedOrNot && Retried(deaths) != (f.Retried == OnlyRetried) {
		return false
	}
	if len(f.MessageIDs) > 0 {
		p, err := amqp.DecodeProperties(props)
		if text, ok := p.MessageID(); err != nil || !ok || !slices.Contains(f.MessageIDs, text) {
			return false
		}
	}
	if f.Header != "" {
		v, ok := props.Header(f.Header)
		if b, isBytes := v.([]byte); isBytes {
			v = string(b)
		}
		return ok && fmt.Sprint(v) == f.HeaderValue
	}
	return true
}

func (f *Filter) takesDeath(deaths []Death) bool {
	if len(f.Reasons) == 0 && f.Queue == "" && f.DiedBefore == 0 && f.DiedAfter == 0 {
		return true
	}
	if len(deaths) == 0 {
		return false
	}
	d := &deaths[0]
	return (len(f.Reasons) == 0 || slices.Contains(f.Reasons, d.Reason)) &&
		(f.Queue == "" || f.Queue == d.Queue) &&
		(f.DiedBefore == 0 || d.LastMillis <= f.DiedBefore) &&
		(f.DiedAfter == 0 || d.LastMillis >= f.DiedAfter)
}

// ParseReason finds the reason that String gives the word for.
func ParseReason(word string) (Reason, bool) {
	for r := Rejected; r <= LastDeath; r++ {
		if r != Transaction && r.String() == word {
			return r, true
		}
	}
	return 0, false
}

// ReasonWords are the words of all reasons of a death.
func ReasonWords() (words []string) {
	for r := Rejected; r <= LastDeath; r++ {
		if r != Transaction {
			words = append(words, r.String())
		}
	}
	return words
}
