package amqp

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func allProperties() *Properties {
	p := new(Properties)
	p.SetContentType("text/plain")
	p.SetContentEncoding("gzip")
	p.SetHeaders(everyType())
	p.SetDeliveryMode(2)
	p.SetPriority(9)
	p.SetCorrelationID("c")
	p.SetReplyTo("r")
	p.SetExpiration("60000")
	p.SetMessageID("m")
	p.SetTimestamp(1700000000)
	p.SetType("t")
	p.SetUserID("guest")
	p.SetAppID("a")
	p.SetClusterID("k")
	return p
}

func TestPropertiesGolden(t *testing.T) {
	p := new(Properties)
	p.SetDeliveryMode(2)
	p.SetExpiration("60")
	p.SetHeaders(Table{{Name: "x", Value: nil}})
	p.SetClusterID("")
	want := unhex(t, "3104 00000003 017856 02 02 3630 00")
	if got := p.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("AppendTo: got %x, want %x", got, want)
	}
	got, err := DecodeProperties(want)
	if err != nil || !reflect.DeepEqual(got, *p) {
		t.Errorf("DecodeProperties: got %+v %v, want %+v", got, err, *p)
	}
}

// present lists which properties accessors of either kind report, by flag.
func present(p *Properties, r RawProperties) (decoded, raw PropertyFlags) {
	add := func(set *PropertyFlags, flag PropertyFlags, ok bool) {
		if ok {
			*set |= flag
		}
	}
	both := func(flag PropertyFlags, a, b any, inDecoded, inRaw bool) {
		add(&decoded, flag, inDecoded)
		add(&raw, flag, inRaw && reflect.DeepEqual(a, b))
	}
	str := func(flag PropertyFlags, decoded, raw func() (string, bool)) {
		a, okA := decoded()
		b, okB := raw()
		both(flag, a, b, okA, okB)
	}
	octet := func(flag PropertyFlags, decoded, raw func() (uint8, bool)) {
		a, okA := decoded()
		b, okB := raw()
		both(flag, a, b, okA, okB)
	}
	str(PropContentType, p.ContentType, r.ContentType)
	str(PropContentEncoding, p.ContentEncoding, r.ContentEncoding)
	octet(PropDeliveryMode, p.DeliveryMode, r.DeliveryMode)
	octet(PropPriority, p.Priority, r.Priority)
	str(PropCorrelationID, p.CorrelationID, r.CorrelationID)
	str(PropReplyTo, p.ReplyTo, r.ReplyTo)
	str(PropExpiration, p.Expiration, r.Expiration)
	str(PropMessageID, p.MessageID, r.MessageID)
	str(PropType, p.Type, r.Type)
	str(PropUserID, p.UserID, r.UserID)
	str(PropAppID, p.AppID, r.AppID)
	str(PropClusterID, p.ClusterID, r.ClusterID)
	ta, okA := p.Timestamp()
	tb, okB := r.Timestamp()
	both(PropTimestamp, ta, tb, okA, okB)
	ha, okA := p.Headers()
	hb, okB, err := r.Headers()
	both(PropHeaders, ha, hb, okA, okB && err == nil)
	return decoded, raw
}

// TestPropertiesEverySubset removes each property from the full set and keeps each
// alone, and compares decoded with raw reading.
func TestPropertiesEverySubset(t *testing.T) {
	for bit := PropContentType; bit >= PropClusterID; bit >>= 1 {
		for _, keep := range []PropertyFlags{bit, propsAll &^ bit, propsAll} {
			p := allProperties()
			p.Remove(propsAll &^ keep)
			raw := RawProperties(p.AppendTo(nil))
			if err := raw.Validate(); err != nil {
				t.Fatalf("Validate(%x): %v", raw, err)
			}
			d, err := DecodeProperties(raw)
			if err != nil || !reflect.DeepEqual(d, *p) {
				t.Fatalf("round trip of %04x: got %+v %v", keep, d, err)
			}
			decoded, lazily := present(&d, raw)
			if decoded != keep || lazily != keep || raw.Flags() != keep || p.Flags() != keep {
				t.Errorf("flags %04x: decoded %04x, raw %04x", keep, decoded, lazily)
			}
			full := RawProperties(allProperties().AppendTo(nil))
			if got := full.Without(propsAll &^ keep); !bytes.Equal(got, raw) {
				t.Errorf("Without(%04x): got %x, want %x", propsAll&^keep, got, raw)
			}
		}
	}
}

func TestPropertiesMalformed(t *testing.T) {
	for _, s := range []string{
		"80", "8000", "8000 05 61", "8001 0161", "0002", "2000 00000001", "2000 ffffffff", "0040 00000000",
		"1000", "8000 0161 00", "2000 00000003 01617a",
	} {
		raw := RawProperties(unhex(t, s))
		if err := raw.Validate(); err == nil {
			t.Errorf("Validate(%s): want an error", s)
		}
		_, err := DecodeProperties(raw)
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != SyntaxError {
			t.Errorf("DecodeProperties(%s): got %v, want a syntax error", s, err)
		}
		if _, err := Rewrite(raw, func(*Properties) {}); err == nil {
			t.Errorf("Rewrite(%s): want an error", s)
		}
		present(new(Properties), raw) // must not panic
		raw.Header("x")
		raw.Without(PropContentType)
	}
	if _, ok, err := RawProperties(unhex(t, "2000 00000009 01")).Headers(); ok || err == nil {
		t.Errorf("Headers cut short: got %v %v, want an error", ok, err)
	}
}

func TestEmptyProperties(t *testing.T) {
	for _, raw := range []RawProperties{nil, {}, {0, 0}} {
		if err := raw.Validate(); err != nil {
			t.Errorf("Validate(%x): %v", raw, err)
		}
		if d, l := present(new(Properties), raw); d != 0 || l != 0 {
			t.Errorf("%x: got properties %04x %04x", raw, d, l)
		}
		got, err := Rewrite(raw, func(p *Properties) { p.SetPriority(3) })
		if want := unhex(t, "0800 03"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Rewrite(%x): got %x %v, want %x", raw, got, err, want)
		}
	}
}

func TestHeaderLookup(t *testing.T) {
	p := new(Properties)
	p.SetContentType("x")
	p.SetHeaders(append(everyType(), Field{Name: "t", Value: "second"}))
	raw := RawProperties(p.AppendTo(nil))
	for _, f := range everyType() {
		if v, ok := raw.Header(f.Name); !ok || !EqualValues(v, f.Value) {
			t.Errorf("Header(%q): got %v %v, want %v", f.Name, v, ok, f.Value)
		}
	}
	if v, ok := raw.Header("nope"); ok {
		t.Errorf("Header of an absent name: got %v", v)
	}
	if v, ok := (RawProperties{0x80, 0, 1, 'x'}).Header("t"); ok {
		t.Errorf("Header without headers: got %v", v)
	}
}

func TestRewriteKeepsTheRest(t *testing.T) {
	raw := RawProperties(allProperties().AppendTo(nil))
	got, err := Rewrite(raw, func(p *Properties) { p.Remove(PropExpiration) })
	if err != nil || !bytes.Equal(got, raw.Without(PropExpiration)) {
		t.Errorf("Rewrite: got %x %v, want %x", got, err, raw.Without(PropExpiration))
	}
	same, err := Rewrite(raw, func(*Properties) {})
	if err != nil || !bytes.Equal(same, raw) {
		t.Errorf("Rewrite without an edit: got %x %v, want %x", same, err, raw)
	}
	if clone := raw.Clone(); &clone[0] == &raw[0] || !bytes.Equal(clone, raw) {
		t.Error("Clone: want equal bytes elsewhere")
	}
}
