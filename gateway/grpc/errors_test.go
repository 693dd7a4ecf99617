package grpc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
)

// TestRefusalsAreText: names that are no UTF-8 are quoted in refusals, which have to be UTF-8 all the same.
func TestRefusalsAreText(t *testing.T) {
	for _, err := range []error{
		broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '/'", "\xff"), invalid("'%s' is not good", "\xff"), errors.New("\xff"),
	} {
		r := refusalOf(err)
		for _, m := range []proto.Message{r.inline(), r.GRPCStatus().Proto()} {
			if _, err := proto.Marshal(m); err != nil {
				t.Errorf("%q: %v", r.text, err)
			}
		}
	}
}

// headersOfAClient is how many bytes of headers libraries take by default at least, errors among them.
const headersOfAClient = 8 << 10

// TestRefusalsAreBrief: a refusal quotes no more of what a client has sent than its library takes in the header that errors come in.
func TestRefusalsAreBrief(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u00e9", 1<<20)
	for _, err := range []error{
		broker.Errorf(broker.NotFound, "no queue '%s' in vhost '/'", long), broker.Errorf(broker.NotFound, " no queue '%s' in vhost '/'", long), invalid("'%s' is no page_token", long),
	} {
		r := refusalOf(err)
		raw, err := proto.Marshal(r.GRPCStatus().Proto())
		if err != nil {
			t.Fatal(err)
		}
		// As text each byte becomes three; the details are in base64.
		if n := 3*len(r.text) + len(raw)*4/3; n > headersOfAClient {
			t.Errorf("a refusal of %d bytes takes %d in headers", len(r.text), n)
		}
		if want := strings.Repeat("\u00e9", 100); !strings.Contains(r.text, want) || strings.ContainsRune(r.text, '\uFFFD') {
			t.Errorf("it is cut to %q", r.text)
		}
	}
}

// TestAuditIsBrief: whoever may log in could fill the log with what nobody has looked at yet.
func TestAuditIsBrief(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
	m := &messageService{s: s}
	ctx := context.WithValue(t.Context(), callerKey{}, caller{user: broker.User{Name: "u"}, peer: &net.TCPAddr{}})
	_, err := m.StopRedrive(ctx, &warrenv1.StopRedriveRequest{Queue: strings.Repeat("q", 1<<20)})
	if err == nil || log.Len() > 4*briefMax || !strings.Contains(log.String(), "result=refused") {
		t.Errorf("%v is a line of %d bytes", err, log.Len())
	}
}
