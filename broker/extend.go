package broker

// Extend begins the time anew after which deliveries of the channel are taken back from their client. What is settled, or has no such time,
// is passed over. It does not block.
func (ch *Channel) Extend(list []*Delivery) {
	for _, d := range list {
		d.queue.extend(d)
	}
}

func (s *stream) extend(d *Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[d.id]
	if h == nil || h.attempt != d.attempt || h.settled > 0 || h.aging == nil {
		return
	}
	a := h.aging
	s.unageLocked(h)
	s.ageLocked(h, a)
}
