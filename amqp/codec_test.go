package amqp

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatalf("bad hex in test: %v", err)
	}
	return b
}

// goldens are payloads written down from the specification by hand.
var goldens = []struct {
	method Method
	hex    string
}{
	{
		&ConnectionStart{VersionMinor: 9, ServerProperties: Table{{Name: "a", Value: true}}, Mechanisms: "PLAIN", Locales: "en_US"},
		"000a000a 00 09 00000004 01 61 74 01 00000005 504c41494e 00000005 656e5f5553",
	},
	{
		&ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00u\x00p", Locale: "en_US"},
		"000a000b 00000000 05 504c41494e 00000004 00750070 05 656e5f5553",
	},
	{&ConnectionTune{ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60}, "000a001e 07ff 00020000 003c"},
	{&ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60}, "000a001f 07ff 00020000 003c"},
	{&ConnectionOpen{VirtualHost: "/"}, "000a0028 01 2f 00 00"},
	{&ConnectionOpenOk{}, "000a0029 00"},
	{&ConnectionClose{ReplyCode: 200, ReplyText: "OK", ClassID: 60, MethodID: 40}, "000a0032 00c8 02 4f4b 003c 0028"},
	{&ConnectionCloseOk{}, "000a0033"},
	{&ConnectionBlocked{Reason: "low"}, "000a003c 03 6c6f77"},
	{&ConnectionUnblocked{}, "000a003d"},
	{&ConnectionUpdateSecret{NewSecret: "s", Reason: "r"}, "000a0046 00000001 73 01 72"},
	{&ConnectionUpdateSecretOk{}, "000a0047"},
	{&ChannelOpen{}, "0014000a 00"},
	{&ChannelOpenOk{}, "0014000b 00000000"},
	{&ChannelFlow{Active: true}, "00140014 01"},
	{&ChannelClose{ReplyCode: 404, ReplyText: "x", ClassID: 50, MethodID: 10}, "00140028 0194 01 78 0032 000a"},
	{&AccessRequest{Realm: "/data", Passive: true, Read: true}, "001e000a 05 2f64617461 12"},
	{&AccessRequestOk{Ticket: 1}, "001e000b 0001"},
	{
		&ExchangeDeclare{Exchange: "e", Type: "topic", Durable: true, Internal: true},
		"0028000a 0000 01 65 05 746f706963 0a 00000000",
	},
	{&ExchangeBind{Destination: "d", Source: "s", RoutingKey: "k", NoWait: true}, "0028001e 0000 01 64 01 73 01 6b 01 00000000"},
	{&ExchangeUnbindOk{}, "00280033"},
	{
		&QueueDeclare{Queue: "q", Durable: true, NoWait: true, Arguments: Table{{Name: "x", Value: int32(5)}}},
		"0032000a 0000 01 71 12 00000007 01 78 49 00000005",
	},
	{&QueueDeclareOk{Queue: "q", MessageCount: 1, ConsumerCount: 2}, "0032000b 01 71 00000001 00000002"},
	{&QueueUnbind{Queue: "q", Exchange: "e", RoutingKey: "k"}, "00320032 0000 01 71 01 65 01 6b 00000000"},
	{&QueueDelete{Queue: "q", IfUnused: true, IfEmpty: true}, "00320028 0000 01 71 03"},
	{&BasicQos{PrefetchCount: 10, Global: true}, "003c000a 00000000 000a 01"},
	{&BasicConsume{Queue: "q", ConsumerTag: "t", NoAck: true, Exclusive: true}, "003c0014 0000 01 71 01 74 06 00000000"},
	{&BasicPublish{Exchange: "e", RoutingKey: "key", Mandatory: true}, "003c0028 0000 01 65 03 6b6579 01"},
	{&BasicReturn{ReplyCode: 312, ReplyText: "NO_ROUTE", RoutingKey: "k"}, "003c0032 0138 08 4e4f5f524f555445 00 01 6b"},
	{&BasicDeliver{ConsumerTag: "t", DeliveryTag: 258, Redelivered: true, RoutingKey: "k"}, "003c003c 01 74 0000000000000102 01 00 01 6b"},
	{&BasicGetOk{DeliveryTag: 1, MessageCount: 3}, "003c0047 0000000000000001 00 00 00 00000003"},
	{&BasicGetEmpty{}, "003c0048 00"},
	{&BasicAck{DeliveryTag: 7, Multiple: true}, "003c0050 0000000000000007 01"},
	{&BasicReject{DeliveryTag: 7, Requeue: true}, "003c005a 0000000000000007 01"},
	{&BasicRecover{Requeue: true}, "003c006e 01"},
	{&BasicNack{DeliveryTag: 7, Requeue: true}, "003c0078 0000000000000007 02"},
	{&ConfirmSelect{NoWait: true}, "0055000a 01"},
	{&TxSelect{}, "005a000a"},
	{&TxRollbackOk{}, "005a001f"},
}

func TestGoldenMethods(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.method.Name(), func(t *testing.T) {
			want := unhex(t, g.hex)
			if got := g.method.AppendTo(nil); !bytes.Equal(got, want) {
				t.Errorf("AppendTo: got %x, want %x", got, want)
			}
			got, err := Decode(want)
			if err != nil {
				t.Fatalf("Decode(%x): %v", want, err)
			}
			if !reflect.DeepEqual(got, g.method) {
				t.Errorf("Decode(%x): got %+v, want %+v", want, got, g.method)
			}
			for n := range len(want) {
				if m, err := Decode(want[:n]); err == nil {
					t.Errorf("Decode of the first %d of %d bytes: got %+v, want an error", n, len(want), m)
				}
			}
			if _, err := Decode(append(want, 0)); err == nil {
				t.Error("Decode with a byte left over: want an error")
			}
		})
	}
}

// TestTextIsUTF8 checks that what clients name is text, but for basic.publish and what servers send: those carry bytes.
func TestTextIsUTF8(t *testing.T) {
	const bytes = "a\xff"
	for _, m := range []Method{
		&QueueDeclare{Queue: bytes}, &QueueBind{Queue: "q", Exchange: "e", RoutingKey: bytes}, &ExchangeDeclare{Exchange: "e", Type: bytes},
		&ExchangeBind{Destination: bytes}, &BasicConsume{Queue: "q", ConsumerTag: bytes}, &BasicGet{Queue: bytes}, &ConnectionOpen{VirtualHost: bytes},
		&ChannelClose{ReplyText: bytes}, &BasicCancel{ConsumerTag: bytes},
	} {
		_, err := Decode(m.AppendTo(nil))
		want := &Error{Code: FrameError, Text: "Malformed UTF-8 in shortstr"}
		if !reflect.DeepEqual(err, want) {
			t.Errorf("%s: got %v, want %v", m.Name(), err, want)
		}
	}
	for _, m := range []Method{
		&BasicPublish{Exchange: bytes, RoutingKey: bytes}, &BasicDeliver{RoutingKey: bytes}, &BasicReturn{RoutingKey: bytes}, &BasicGetOk{RoutingKey: bytes},
		&QueueDeclare{Queue: "\u00e4", Arguments: Table{{Name: bytes, Value: bytes}}},
	} {
		if got, err := Decode(m.AppendTo(nil)); err != nil || !sameMethod(got, m) {
			t.Errorf("%s: got %+v, %v", m.Name(), got, err)
		}
	}
}

func TestReplyTextIsUTF8(t *testing.T) {
	got := Errorf(NotFound, MethodBasicPublish, "no exchange '%s'", "a\xff\xfe").ReplyText()
	if want := "NOT_FOUND - no exchange 'a\uFFFD'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
