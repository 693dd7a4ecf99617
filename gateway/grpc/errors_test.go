package grpc

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

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
