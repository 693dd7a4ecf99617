package amqp

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
)

// protocolError fails unless err is an *Error with one of the codes.
func protocolError(t *testing.T, err error, codes ...uint16) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("got %v of type %T, want *Error", err, err)
	}
	if slices.Contains(codes, e.Code) {
		return
	}
	t.Fatalf("got %v, want one of the codes %v", err, codes)
}

func FuzzFrame(f *testing.F) {
	f.Add(AppendHeartbeat(nil))
	f.Add(AppendMethodFrame(nil, 1, &BasicPublish{Exchange: "e", RoutingKey: "k"}))
	f.Add(AppendContent(AppendMethodFrame(nil, 1, &BasicDeliver{}), 1, ClassBasic, nil, make([]byte, 5000), 4096))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("AMQP\x00\x00\x09\x01"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		fr := NewFrameReader(bytes.NewReader(stream))
		var again []byte
		for {
			frame, err := fr.Next()
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break
			}
			if err != nil {
				protocolError(t, err, FrameError)
				break
			}
			again = AppendFrame(again, frame.Type, frame.Channel, frame.Payload)
			switch frame.Type {
			case FrameMethod:
				if _, err := Decode(frame.Payload); err != nil {
					protocolError(t, err, SyntaxError, CommandInvalid, FrameError)
				}
			case FrameHeader:
				if h, err := ParseContentHeader(frame.Payload); err != nil {
					protocolError(t, err, SyntaxError)
				} else if err := h.Properties.Validate(); err != nil {
					protocolError(t, err, SyntaxError)
				}
			}
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatalf("frames read: %x\nstream: %x", again, stream)
		}
	})
}

func FuzzMethod(f *testing.F) {
	for _, g := range goldens {
		f.Add(g.method.AppendTo(nil))
	}
	for _, id := range Methods() {
		f.Add([]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := Decode(payload)
		if err != nil {
			protocolError(t, err, SyntaxError, CommandInvalid, FrameError)
			return
		}
		if info, ok := m.ID().Info(); !ok || info.Name != m.Name() {
			t.Fatalf("%T: facts %+v", m, info)
		}
		// Reserved fields and spare bits are not kept, so the length may shrink, but a second
		// round must be stable.
		enc := m.AppendTo(nil)
		back, err := Decode(enc)
		if err != nil || !sameMethod(back, m) {
			t.Fatalf("%x decodes to %+v, encodes to %x, decodes to %+v (%v)", payload, m, enc, back, err)
		}
	})
}

func FuzzTable(f *testing.F) {
	f.Add(AppendTable(nil, everyType()))
	f.Add(AppendTable(nil, nested(TableDepthMax+1)))
	f.Add(unhex(f, "0000000b 01 61 4c fffffffffffffffe"))
	f.Add(unhex(f, "00000017 01 63 41 0000000b 4c 0000000000000001 74 ff 01 62 74 02"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tab, err := DecodeTable(raw)
		skip := cursor{buf: raw}
		skip.skipTable(0)
		if skipped := skip.finish(0); (skipped == nil) != (err == nil) {
			t.Fatalf("%x: decoding says %v, checking says %v", raw, err, skipped)
		}
		if err != nil {
			protocolError(t, err, SyntaxError)
			return
		}
		if again := AppendTable(nil, tab); !bytes.Equal(again, raw) {
			t.Fatalf("AppendTable:\n got %x\nwant %x", again, raw)
		}
		if err := tab.Validate(); err != nil {
			t.Fatalf("Validate after decoding: %v", err)
		}
		canonical := Table{}
		for _, field := range tab {
			canonical = append(canonical, Field{Name: field.Name, Value: field.Value})
		}
		if back, err := DecodeTable(AppendTable(nil, canonical)); err != nil || !back.Equal(tab) {
			t.Fatalf("by type: got %v %v, want %v", back, err, tab)
		}
	})
}

func FuzzProperties(f *testing.F) {
	f.Add(allProperties().AppendTo(nil))
	f.Add([]byte{0, 0})
	f.Add([]byte{0x80, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		raw := RawProperties(data)
		p, err := DecodeProperties(raw)
		if len(raw) > 0 {
			if valid := raw.Validate(); (valid == nil) != (err == nil) {
				t.Fatalf("%x: decoding says %v, Validate says %v", raw, err, valid)
			}
		}
		decoded, lazily := present(&p, raw) // must not panic on anything
		if err != nil {
			protocolError(t, err, SyntaxError)
			return
		}
		if again := p.AppendTo(nil); !bytes.Equal(again, raw) {
			t.Fatalf("AppendTo: got %x, want %x", again, raw)
		}
		// Not-a-number headers are unequal to themselves for the comparison in present.
		if mask := ^PropHeaders; decoded != p.Flags() || lazily&mask != decoded&mask {
			t.Fatalf("%x: flags %04x, decoded %04x, raw %04x", raw, p.Flags(), decoded, lazily)
		}
		if got := raw.Without(PropExpiration | PropHeaders); got.Flags() != p.Flags()&^(PropExpiration|PropHeaders) || got.Validate() != nil {
			t.Fatalf("Without: got %x from %x", got, raw)
		}
	})
}
