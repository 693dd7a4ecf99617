package grpc

import (
	"context"
	"time"

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

// sendRead sends a response. A client that has not read it after a while is cut off, as soon as others need its place.
func (s *Server) sendRead(stream grpc.ServerStream, resp any, needed func() bool) error {
	sent := make(chan error, 1)
	s.workers.Go(func() { sent <- stream.SendMsg(resp) }) // ends with the call at the latest
	timer := time.NewTimer(s.waits.peek)
	defer timer.Stop()
	for {
		select {
		case err := <-sent:
			return err
		case <-timer.C:
			if needed() {
				return refuse(codes.ResourceExhausted, reasonSlow, "the response was not read in %v", s.waits.peek)
			}
			timer.Reset(s.waits.peek / 30)
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}
