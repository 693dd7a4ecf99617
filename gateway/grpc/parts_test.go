package grpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// voids is a message whose headers have an array of n values, of two bytes each.
func voids(n int) *warrenv1.Publication {
	list := make([]*warrenv1.Value, n)
	for i := range list {
		list[i] = &warrenv1.Value{}
	}
	array := &warrenv1.Value{Kind: &warrenv1.Value_ArrayValue{ArrayValue: &warrenv1.Array{Values: list}}}
	return &warrenv1.Publication{Message: &warrenv1.Message{Properties: &warrenv1.Properties{Headers: &warrenv1.Table{Fields: map[string]*warrenv1.Value{"a": array}}}}}
}

// TestParts: what counts as a part is what takes memory of its own when it is decoded; a body does not, however large it is.
func TestParts(t *testing.T) {
	t.Parallel()
	ids := make([]uint64, 2*packedShare)
	deep := &warrenv1.Value{}
	for range partsDepthMax {
		deep = &warrenv1.Value{Kind: &warrenv1.Value_ArrayValue{ArrayValue: &warrenv1.Array{Values: []*warrenv1.Value{deep}}}}
	}
	for _, c := range []struct {
		what string
		m    proto.Message
		want int // -1: too many
	}{
		{"nothing", &warrenv1.PublishRequest{}, 0},
		{"a body", &warrenv1.PublishRequest{Publication: &warrenv1.Publication{Message: &warrenv1.Message{Body: make([]byte, 1<<20)}}}, 2},
		{"numbers in a list", &warrenv1.PeekRequest{Filter: &warrenv1.MessageFilter{Ids: ids}}, 3},
		{"texts in a list", &warrenv1.PeekRequest{Filter: &warrenv1.MessageFilter{Reasons: make([]string, 5)}}, 6},
		{"values", &warrenv1.PublishRequest{Publication: voids(10)}, 17},
		{"empty messages", &warrenv1.PublishStreamRequest{Publications: make([]*warrenv1.Publication, 1000)}, 1000},
		{"more empty messages", &warrenv1.PublishStreamRequest{Publications: make([]*warrenv1.Publication, partsMax+1)}, -1},
		{"values deep inside", deep, -1},
	} {
		raw, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := partsOf(raw, c.m.ProtoReflect().Descriptor())
		if err != nil {
			got = -1
		}
		if got != c.want {
			t.Errorf("%s: %d parts, want %d", c.what, got, c.want)
		}
	}
	if _, err := partsOf([]byte{0xff, 0xff}, (&warrenv1.PublishRequest{}).ProtoReflect().Descriptor()); err != nil {
		t.Errorf("what is no request: %v", err)
	}
}

// TestDenseRequests: a request that takes much more memory when it is decoded than its bytes waits for room for that, and is refused if it is too much
// whatever the room.
func TestDenseRequests(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(*patience) {})
	room := &s.publishes.decoded
	room.most = 1 << 20
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer good.token"), limitsWait)
	defer cancel()
	client := warrenv1.NewPublishServiceClient(connected(t, addr))
	_, err := client.Publish(ctx, &warrenv1.PublishRequest{Publication: voids(partsMax)})
	wantRefusal(t, err, codes.ResourceExhausted, reasonInvalid)

	if err := room.enter(ctx, room.most, nil); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // ends with the call
		stream, err := client.PublishStream(ctx)
		if err == nil {
			err = stream.Send(&warrenv1.PublishStreamRequest{Publications: make([]*warrenv1.Publication, 20_000)})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		ended <- err
	}()
	for !room.waited() {
		select {
		case err := <-ended:
			t.Fatalf("it does not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	room.free(room.most)
	wantRefusal(t, <-ended, codes.InvalidArgument, reasonInvalid) // it does not open the stream
	for used := int64(-1); used != 0; time.Sleep(time.Millisecond) {
		room.mu.Lock()
		used = room.used
		room.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatalf("%d bytes are in use still", used)
		}
	}
}
