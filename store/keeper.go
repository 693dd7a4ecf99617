package store

// keep is the keeper: it looks after sealed segments until the store closes.
func (s *Store) keep() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
	}
}
