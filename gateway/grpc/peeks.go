package grpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// peeksMax is how many peeks are answered at a time: each takes some MiB at the node until it has been read, and a connection may ask for
// streamsMax at once. More wait.
const peeksMax = 32

// peekAnswer answers one peek when it is its turn, which comes when the request has been read. A client that does not read the response is
// cut off after a while; looking changes nothing, so it can ask again.
func (s *Server) peekAnswer(stream grpc.ServerStream, answer func(recv func(any) error) (any, error)) error {
	ctx, entered := stream.Context(), false
	defer func() {
		if entered {
			<-s.peeks
		}
	}()
	resp, err := answer(func(req any) error {
		if err := stream.RecvMsg(req); err != nil {
			return err
		}
		select {
		case s.peeks <- struct{}{}:
			entered = true
			return nil
		case <-s.ends():
			return refuse(codes.Unavailable, reasonLeaving, "the node leaves")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		return err
	}
	return s.sendRead(stream, resp, func() bool { return true })
}
