package broker

import "context"

// AwaitSettled waits until the logs of the queues have what the channel has settled, so that no loss of a node takes it back. The error is why ctx has
// ended before.
func (ch *Channel) AwaitSettled(ctx context.Context) error {
	ch.Flush()
	for _, c := range ch.consumers {
		ch.useOf(c) // its queue may go on in another life
	}
	for s := range ch.used {
		if err := s.awaitAnswers(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitAnswers waits until all operations of now are answered, or the queue is gone.
func (s *stream) awaitAnswers(ctx context.Context) error {
	s.mu.Lock()
	last := s.next - 1
	for !s.gone && s.answered < last {
		answers := s.room
		s.mu.Unlock()
		select {
		case <-answers:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.mu.Lock()
	}
	s.mu.Unlock()
	return nil
}
