package fsm

import (
	"fmt"

	"github.com/warrenmq/warren/dlx"
)

// messageVersion is the first byte of an encoded message.
const messageVersion = 1

// Bits of a death record's flag byte; the reason is in the low bits.
const (
	deathReasonMask    = 0x07
	deathHasExpiration = 0x08
	deathRedriven      = 0x10
	deathBefore        = 0x20
	deathDetail        = 0x40 // of level 2
)

// EncodeMessage appends the encoding of m to dst. The format is described in
// docs/formats/entry.md.
func EncodeMessage(dst []byte, m *Message) []byte {
	dst = append(dst, messageVersion)
	dst = appendString(dst, m.Exchange)
	dst = appendUint(dst, uint64(len(m.RoutingKeys)))
	for _, k := range m.RoutingKeys {
		dst = appendString(dst, k)
	}
	dst = appendUint(dst, uint64(m.BCC))
	dst = appendBytes(dst, m.Properties)
	dst = appendUint(dst, uint64(len(m.Deaths)))
	for i := range m.Deaths {
		dst = appendDeath(dst, &m.Deaths[i])
	}
	return append(dst, m.Body...)
}

// MessageSize is the length of m's encoding.
func MessageSize(m *Message) int {
	n := 1 + stringSize(m.Exchange) + uintSize(uint64(len(m.RoutingKeys))) +
		uintSize(uint64(m.BCC)) + stringSize(m.Properties) + uintSize(uint64(len(m.Deaths))) + len(m.Body)
	for _, k := range m.RoutingKeys {
		n += stringSize(k)
	}
	if len(m.Deaths) > 0 {
		var scratch []byte
		for i := range m.Deaths {
			scratch = appendDeath(scratch[:0], &m.Deaths[i])
			n += len(scratch)
		}
	}
	return n
}

func appendDeath(dst []byte, d *dlx.Death) []byte {
	flags := byte(d.Reason) & deathReasonMask
	if d.HasExpiration {
		flags |= deathHasExpiration
	}
	if d.Redriven {
		flags |= deathRedriven
	}
	if d.Before > 0 {
		flags |= deathBefore
	}
	if d.Detail != "" {
		flags |= deathDetail
	}
	dst = append(dst, flags)
	dst = appendString(dst, d.Queue)
	dst = appendUint(dst, d.Count)
	dst = appendInt(dst, d.FirstMillis)
	dst = appendInt(dst, d.LastMillis-d.FirstMillis)
	dst = appendString(dst, d.Exchange)
	dst = appendUint(dst, uint64(len(d.RoutingKeys)))
	for _, k := range d.RoutingKeys {
		dst = appendString(dst, k)
	}
	if d.HasExpiration {
		dst = appendString(dst, d.OriginalExpiration)
	}
	if d.Before > 0 {
		dst = appendUint(dst, d.Before)
	}
	if d.Detail != "" {
		dst = appendString(dst, d.Detail)
	}
	return dst
}

// DecodeMessage decodes what EncodeMessage wrote. The result shares b's bytes.
func DecodeMessage(b []byte) (Message, error) {
	r := reader{b: b}
	if v := r.byte(); r.err == nil && v != messageVersion {
		return Message{}, fmt.Errorf("decode message: %w %d", ErrVersion, v)
	}
	var m Message
	m.Exchange = r.string()
	m.RoutingKeys = r.strings()
	bcc := r.uvarint()
	if bcc > uint64(len(m.RoutingKeys)) {
		r.fail(ErrMalformed, "more BCC keys than keys")
	}
	m.BCC = int(bcc)
	m.Properties = r.bytes()
	if n := r.count(6); n > 0 {
		m.Deaths = make([]dlx.Death, n)
		for i := range m.Deaths {
			r.death(&m.Deaths[i])
		}
	}
	if r.err != nil {
		return Message{}, fmt.Errorf("decode message: %w", r.err)
	}
	m.Body = b[r.pos:]
	return m, nil
}

// Outline is what a consumer's client is told of a message.
type Outline struct {
	Exchange, Key string // Key is the first one
	Properties    []byte
	Body          []byte
}

// DecodeOutline reads from what EncodeMessage wrote what a delivery needs, and steps over the rest. The result
// shares b's bytes; but for death records nothing is allocated.
func DecodeOutline(b []byte) (m Outline, err error) {
	r := reader{b: b}
	if v := r.byte(); r.err == nil && v != messageVersion {
		return Outline{}, fmt.Errorf("decode message: %w %d", ErrVersion, v)
	}
	m.Exchange = r.string()
	keys := r.count(1)
	for i := range keys {
		key := r.string()
		if i == 0 {
			m.Key = key
		}
	}
	if bcc := r.uvarint(); bcc > uint64(keys) {
		r.fail(ErrMalformed, "more BCC keys than keys")
	}
	m.Properties = r.bytes()
	for range r.count(6) {
		var d dlx.Death
		r.death(&d)
	}
	if r.err != nil {
		return Outline{}, fmt.Errorf("decode message: %w", r.err)
	}
	m.Body = b[r.pos:]
	return m, nil
}

func (r *reader) strings() []string {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.string()
	}
	return list
}

func (r *reader) death(d *dlx.Death) {
	flags := r.byte()
	d.Reason = dlx.Reason(flags & deathReasonMask)
	if !isDeath(d.Reason) || flags&^(deathReasonMask|deathHasExpiration|deathRedriven|deathBefore|deathDetail) != 0 {
		r.fail(ErrMalformed, "death record")
	}
	d.Redriven = flags&deathRedriven != 0
	d.Queue = r.string()
	d.Count = r.uvarint()
	d.FirstMillis = r.varint()
	d.LastMillis = d.FirstMillis + r.varint()
	d.Exchange = r.string()
	d.RoutingKeys = r.strings()
	if d.HasExpiration = flags&deathHasExpiration != 0; d.HasExpiration {
		d.OriginalExpiration = r.string()
	}
	if flags&deathBefore != 0 {
		if d.Before = r.uvarint(); d.Before == 0 || d.Before > d.Count {
			r.fail(ErrMalformed, "deaths before")
		}
	}
	if flags&deathDetail != 0 {
		d.Detail = r.detail()
	}
}

func isDeath(r dlx.Reason) bool {
	return r >= dlx.Rejected && r <= dlx.LastDeath && r != dlx.Transaction
}
