package catalog

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// oldOutcome writes an outcome as programs did that kept refusals whole.
func oldOutcome(o *outcome) []byte {
	f := new(fields)
	f.u64(&o.index)
	f.bool(&o.changed)
	f.u64(&o.id)
	f.u16(&o.code)
	str(f, &o.text)
	return f.buf
}

// TestLongRefusal: a refusal that repeats what a client sent leaves a snapshot that can be read, and a retry hears the same before and after.
func TestLongRefusal(t *testing.T) {
	s := newScript(t)
	s.ok(declareX("h", exchange.Headers))
	s.ok(declareX("d", exchange.Fanout))
	c := chain("h", "d")
	c.Binding.Arguments = amqp.Table{{Name: "x-match", Value: strings.Repeat("x", stringBytesMax)}}
	entry := encodeEntry(requestID{1}, c)
	s.i++
	first := s.m.apply(s.i, entry).outcome
	if first.code != amqp.PreconditionFailed || len(first.text) > textBytesMax {
		t.Errorf("refused with %d and %d bytes", first.code, len(first.text))
	}
	if err := (fsm{s.m}).Restore(readCloser{bytes.NewReader(snapshotBytes(t, s.m))}); err != nil {
		t.Fatal(err)
	}
	s.i++
	if again := s.m.apply(s.i, entry).outcome; again != first {
		t.Errorf("the retry hears %+v, the first one %+v", again, first)
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// TestLongTexts: whatever a refusal's text is, it is cut where it is kept, between runes, and where an older program's is read.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("ä", 35_000) + "."
	for _, text := range []string{"", long[:textBytesMax], long[:textBytesMax+2], long[1 : textBytesMax+2], long} {
		want := outcome{index: 7, code: 406, text: cutText(text)}
		if len(want.text) > textBytesMax || len(want.text) < min(len(text), textBytesMax-utf8.UTFMax) || !strings.HasPrefix(text, want.text) {
			t.Errorf("%d bytes become %d", len(text), len(want.text))
		}
		whole := outcome{index: 7, code: 406, text: text}
		now := new(fields)
		whole.fields(now)
		for by, raw := range map[string][]byte{"this program": now.buf, "an older one": oldOutcome(&whole)} {
			var got outcome
			f := &fields{buf: raw, reading: true}
			if got.fields(f); f.end() != nil || got != want {
				t.Errorf("%d bytes that %s wrote are read as %d, %v", len(text), by, len(got.text), f.err)
			}
		}
	}
	f := &fields{buf: oldOutcome(&outcome{text: strings.Repeat("x", longTextMax+1)}), reading: true}
	if new(outcome).fields(f); !errors.Is(f.end(), ErrMalformed) {
		t.Errorf("more than any refusal has is read: %v", f.err)
	}
}
