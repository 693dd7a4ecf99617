package amqp

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestReplyCodes(t *testing.T) {
	soft := []uint16{311, 312, 313, 403, 404, 405, 406}
	hard := []uint16{320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541}
	for _, code := range soft {
		if !IsSoft(code) || ReplyName(code) == "" {
			t.Errorf("%d: got soft=%v name=%q, want a named soft error", code, IsSoft(code), ReplyName(code))
		}
	}
	for _, code := range hard {
		if IsSoft(code) || ReplyName(code) == "" {
			t.Errorf("%d: got soft=%v name=%q, want a named hard error", code, IsSoft(code), ReplyName(code))
		}
	}
	if ReplyName(NotFound) != "NOT_FOUND" || ReplyName(NoRoute) != "NO_ROUTE" || ReplyName(999) != "" || IsSoft(999) {
		t.Error("ReplyName: wrong name")
	}
}

func TestErrorTexts(t *testing.T) {
	cases := []struct {
		err         *Error
		reply, text string
	}{
		{
			Errorf(NotFound, MethodQueueDeclare, "no queue '%s' in vhost '/'", "q"),
			"NOT_FOUND - no queue 'q' in vhost '/'", "404 NOT_FOUND - no queue 'q' in vhost '/' (queue.declare)",
		},
		{&Error{Code: ReplySuccess, Text: "OK"}, "OK", "200 OK"},
		{&Error{Code: InternalError}, "INTERNAL_ERROR", "541 INTERNAL_ERROR"},
		{&Error{Code: 999, Text: "odd"}, "odd", "999 odd"},
	}
	for _, tc := range cases {
		if got := tc.err.ReplyText(); got != tc.reply {
			t.Errorf("ReplyText: got %q, want %q", got, tc.reply)
		}
		if got := tc.err.Error(); got != tc.text {
			t.Errorf("Error: got %q, want %q", got, tc.text)
		}
	}
	err := Errorf(InternalError, 0, "read body: %w", io.ErrUnexpectedEOF)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("Errorf with %w: want the cause kept")
	}
	if err.Soft() || !Errorf(NotFound, 0, "x").Soft() {
		t.Error("Soft: want it to follow the code")
	}
}

func TestReplyTextIsCutAtARune(t *testing.T) {
	for pad := range 4 {
		e := &Error{Code: 999, Text: strings.Repeat("a", pad) + strings.Repeat("€", 100), ClassID: 50, MethodID: 10}
		got := e.ReplyText()
		if len(got) > ReplyTextMax || len(got) < ReplyTextMax-3 || !utf8.ValidString(got) || !strings.HasPrefix(e.Text, got) {
			t.Errorf("pad %d: got %d bytes, valid %v", pad, len(got), utf8.ValidString(got))
		}
		ch, conn := e.ChannelClose(), e.ConnectionClose()
		if ch.ReplyText != got || ch.ClassID != 50 || ch.MethodID != 10 || conn.ReplyText != got || conn.ReplyCode != 999 {
			t.Errorf("close methods: got %+v %+v", ch, conn)
		}
	}
	if got := CutString(strings.Repeat("\x80", 300), 255); len(got) != 255 {
		t.Errorf("not UTF-8: got %d bytes, want 255", len(got))
	}
}

func TestUnknownMethod(t *testing.T) {
	_, err := Decode([]byte{0, 50, 0, 99})
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != CommandInvalid || e.ClassID != 50 || e.MethodID != 99 {
		t.Errorf("Decode of an unknown method: got %v, want 503 with its numbers", err)
	}
	if got := NewMethodID(50, 99).String(); got != "50.99" {
		t.Errorf("String of an unknown method: got %q", got)
	}
	_, err = Decode(append((&QueueDeclare{}).AppendTo(nil), 1))
	e, ok = errors.AsType[*Error](err)
	if !ok || e.Code != SyntaxError || e.ClassID != 50 || e.MethodID != 10 {
		t.Errorf("Decode of a malformed method: got %v, want 502 with its numbers", err)
	}
	if err = new(BasicAck).Decode([]byte{0, 60, 0}); err == nil {
		t.Error("Decode of three bytes: want an error")
	}
	err = new(BasicAck).Decode((&BasicNack{}).AppendTo(nil))
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != UnexpectedFrame || e.MethodID != 120 {
		t.Errorf("Decode into another method: got %v, want 505 with the number found", err)
	}
}

func TestMethodFacts(t *testing.T) {
	for _, id := range Methods() {
		info, ok := id.Info()
		if !ok || info.ID != id || info.Name != id.String() || !info.FromClient && !info.FromServer {
			t.Errorf("%s: got %+v %v", id, info, ok)
		}
		if m := newMethod(t, id); m.ID() != id || m.Name() != info.Name {
			t.Errorf("%s: struct %T is %s %d", id, m, m.Name(), m.ID())
		}
		if info.OnConnection != (id.Class() == ClassConnection) {
			t.Errorf("%s: OnConnection is %v", id, info.OnConnection)
		}
		for _, r := range info.Replies() {
			reply, ok := r.Info()
			if !ok || !info.Accepts(r) || !strings.HasPrefix(reply.Name, info.Name+"-") {
				t.Errorf("%s: odd reply %s", id, r)
			}
		}
		if info.Accepts(0) {
			t.Errorf("%s accepts method 0", id)
		}
	}
	if MethodExchangeUnbindOk != NewMethodID(40, 51) || MethodConnectionUpdateSecretOk != NewMethodID(10, 71) {
		t.Error("method numbers differ from the specification")
	}
	get, _ := MethodBasicGet.Info()
	if !get.Accepts(MethodBasicGetOk) || !get.Accepts(MethodBasicGetEmpty) || get.Accepts(MethodBasicDeliver) || !get.Synchronous {
		t.Errorf("basic.get: got %+v", get)
	}
	publish, _ := MethodBasicPublish.Info()
	if !publish.Content || publish.Synchronous || publish.FromServer || !publish.FromClient || publish.Replies() != nil {
		t.Errorf("basic.publish: got %+v", publish)
	}
	recover, _ := MethodBasicRecover.Info()
	if !recover.Accepts(MethodBasicRecoverOk) {
		t.Errorf("basic.recover: got %+v", recover)
	}
	for id, both := range map[MethodID]bool{
		MethodBasicAck: true, MethodBasicNack: true, MethodBasicCancel: true, MethodBasicReject: false, MethodConnectionBlocked: false,
	} {
		if info, _ := id.Info(); (info.FromClient && info.FromServer) != both {
			t.Errorf("%s: sent by both sides is %v", id, !both)
		}
	}
}

func TestRecognizeHeader(t *testing.T) {
	cases := []struct {
		bytes    string
		kind     HeaderKind
		answer10 ProtocolHeader
	}{
		{"AMQP\x00\x00\x09\x01", HeaderAMQP091, Header10SASL()},
		{"AMQP\x01\x01\x00\x09", HeaderAMQP09, Header10SASL()},
		{"AMQP\x00\x00\x0a\x00", HeaderAMQP0, Header091()},
		{"AMQP\x00\x00\x09\x00", HeaderAMQP0, Header091()},
		{"AMQP\x00\x00\x08\x00", HeaderAMQPOther, Header10SASL()},
		{"AMQP\x00\x01\x00\x00", HeaderAMQP10, Header10SASL()},
		{"AMQP\x03\x01\x00\x00", HeaderSASL10, Header10SASL()},
		{"AMQP\x02\x01\x00\x00", HeaderAMQPOther, Header10SASL()},
		{"GET / HT", HeaderHTTP, Header10SASL()},
		{"PUT /api", HeaderHTTP, Header10SASL()},
		{"OPTIONS ", HeaderHTTP, Header10SASL()},
		{"PRI * HT", HeaderHTTP, Header10SASL()},
		{"\x16\x03\x01\x02\x00\x01\x00\x01", HeaderTLS, Header10SASL()},
		{"helloabc", HeaderUnknown, Header10SASL()},
		{"\x00\x00\x00\x00\x00\x00\x00\x00", HeaderUnknown, Header10SASL()},
	}
	names := map[string]HeaderKind{}
	for _, tc := range cases {
		h := ProtocolHeader([]byte(tc.bytes))
		kind := RecognizeHeader(h)
		if kind != tc.kind {
			t.Errorf("RecognizeHeader(%s): got %s, want %s", h, kind, tc.kind)
		}
		if other, ok := names[kind.String()]; ok && other != kind {
			t.Errorf("kinds %d and %d share the name %s", other, kind, kind)
		}
		names[kind.String()] = kind
		if want := tc.kind == HeaderAMQP091 || tc.kind == HeaderAMQP09; kind.Accepted() != want {
			t.Errorf("Accepted(%s): got %v", kind, !want)
		}
		if got := kind.Answer(true); got != tc.answer10 {
			t.Errorf("Answer(%s): got %s, want %s", kind, got, tc.answer10)
		}
		if got := kind.Answer(false); got != Header091() {
			t.Errorf("Answer(%s) without 1.0: got %s", kind, got)
		}
	}
	if got := Header091().String(); got != `AMQP\x00\x00\x09\x01` {
		t.Errorf("String: got %s", got)
	}
}
