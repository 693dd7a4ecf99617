package dlx

import (
	"fmt"

	"github.com/warrenmq/warren/amqp"
)

// The headers that tell of deaths, in the order in which they are added.
const (
	deathList = iota
	firstQueue
	firstReason
	firstExchange
	lastQueue
	lastReason
	lastExchange
	deathSum
	deathHeaders // how many there are
)

var deathHeaderNames = [deathHeaders]string{
	deathList:     "x-death",
	firstQueue:    "x-first-death-queue",
	firstReason:   "x-first-death-reason",
	firstExchange: "x-first-death-exchange",
	lastQueue:     "x-last-death-queue",
	lastReason:    "x-last-death-reason",
	lastExchange:  "x-last-death-exchange",
	deathSum:      "x-death-total",
}

const headerDeaths = "x-death"

// deathHeader tells which header of deaths a name is, deathHeaders for another.
func deathHeader(name []byte) int {
	if len(name) < len(headerDeaths) || string(name[:2]) != "x-" {
		return deathHeaders
	}
	for i, n := range deathHeaderNames {
		if string(name) == n {
			return i
		}
	}
	return deathHeaders
}

// AppendHeaders appends a message's properties with its history, which must not be empty, rendered into
// them: x-death, x-first-death-* and x-last-death-*, with the expiration removed; with total also
// x-death-total, the sum of the counts. through is the exchange that the message came through before it died last, which
// its record, of the first death there, need not have. A client's own headers of these names give way. On an error, about raw
// properties that do not decode, what is appended carries the death headers alone.
//
// The history is written in place: decoding all headers and encoding them again cost ten
// times as much, for each dead letter.
func AppendHeaders(dst []byte, raw amqp.RawProperties, deaths []Death, through string, total bool) ([]byte, error) {
	edit := func(dst []byte, old amqp.RawFields) []byte { return appendFields(dst, old, deaths, through, total) }
	out, err := raw.AppendEdited(dst, amqp.PropExpiration, edit)
	if err != nil {
		fresh, _ := amqp.RawProperties(nil).AppendEdited(dst, 0, edit)
		return fresh, fmt.Errorf("render deaths: %w", err)
	}
	return out, nil
}

// appendFields appends the old headers, those of deaths anew where they stand, and the ones that were not there.
func appendFields(dst []byte, old amqp.RawFields, deaths []Death, through string, total bool) []byte {
	written := newHeaders(old, deaths, total)
	for name, field, ok := old.Next(); ok; name, field, ok = old.Next() {
		i := deathHeader(name)
		if i == deathHeaders || written[i] { // of a name that is there twice the first counts
			dst = append(dst, field...)
			continue
		}
		written[i] = true
		dst = appendDeathHeader(dst, i, deaths, through)
	}
	for i, done := range written {
		if !done {
			dst = appendDeathHeader(dst, i, deaths, through)
		}
	}
	return dst
}

// newHeaders marks those that are not to be written: the first death's are already there, because they came
// with the properties from the queue before, unless the history begins with this death.
func newHeaders(old amqp.RawFields, deaths []Death, total bool) (kept [deathHeaders]bool) {
	kept[deathSum] = !total
	if len(deaths) == 1 && deaths[0].Count == 1 {
		return kept
	}
	for name, _, ok := old.Next(); ok; name, _, ok = old.Next() {
		if deathHeader(name) == firstReason {
			kept[firstQueue], kept[firstReason], kept[firstExchange] = true, true, true
			break
		}
	}
	return kept
}

func appendDeathHeader(dst []byte, which int, deaths []Death, through string) []byte {
	dst = amqp.AppendFieldName(dst, deathHeaderNames[which])
	switch which {
	case deathList:
		return appendDeaths(dst, deaths)
	case firstQueue:
		return amqp.AppendStringValue(dst, oldest(deaths).Queue)
	case firstReason:
		return amqp.AppendStringValue(dst, oldest(deaths).Reason.String())
	case firstExchange:
		return amqp.AppendStringValue(dst, oldest(deaths).Exchange)
	case lastQueue:
		return amqp.AppendStringValue(dst, deaths[0].Queue)
	case lastReason:
		return amqp.AppendStringValue(dst, deaths[0].Reason.String())
	case lastExchange:
		return amqp.AppendStringValue(dst, through)
	}
	return amqp.AppendInt64Value(dst, deathTotal(deaths))
}

func appendDeaths(dst []byte, deaths []Death) []byte {
	dst, list := amqp.BeginArray(dst)
	for i := range deaths {
		d := &deaths[i]
		var table, keys int
		dst, table = amqp.BeginTable(dst)
		if d.HasExpiration {
			dst = amqp.AppendStringValue(amqp.AppendFieldName(dst, "original-expiration"), d.OriginalExpiration)
		}
		dst = amqp.AppendInt64Value(amqp.AppendFieldName(dst, "count"), int64(d.Count))
		dst = amqp.AppendStringValue(amqp.AppendFieldName(dst, "reason"), d.Reason.String())
		dst = amqp.AppendStringValue(amqp.AppendFieldName(dst, "queue"), d.Queue)
		dst = amqp.AppendTimestampValue(amqp.AppendFieldName(dst, "time"), amqp.Timestamp(max(d.FirstMillis, 0)/1000))
		dst = amqp.AppendStringValue(amqp.AppendFieldName(dst, "exchange"), d.Exchange)
		dst, keys = amqp.BeginArray(amqp.AppendFieldName(dst, "routing-keys"))
		for _, key := range d.RoutingKeys {
			dst = amqp.AppendStringValue(dst, key)
		}
		dst = amqp.EndContainer(dst, keys)
		if d.Detail != "" {
			dst = amqp.AppendStringValue(amqp.AppendFieldName(dst, "detail"), d.Detail)
		}
		dst = amqp.EndContainer(dst, table)
	}
	return amqp.EndContainer(dst, list)
}

func deathTotal(deaths []Death) (n int64) {
	for i := range deaths {
		n += int64(deaths[i].Count)
	}
	return n
}

// oldest returns the record that was created first.
func oldest(deaths []Death) *Death {
	first := &deaths[len(deaths)-1]
	for i := len(deaths) - 2; i >= 0; i-- {
		if deaths[i].FirstMillis < first.FirstMillis {
			first = &deaths[i]
		}
	}
	return first
}
