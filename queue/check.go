package queue

import "fmt"

// Check recounts everything that is derived from the live messages and returns
// the first difference. It costs time in proportion to their number.
func (q *Queue) Check() error {
	n, bytes, stored := 0, int64(0), int64(0)
	totals := map[uint8]PriorityTotal{}
	expiring, last := map[MessageID]bool{}, MessageID(0)
	for m := range q.View().All {
		if m.ID <= last || m.ID > q.tail {
			return fmt.Errorf("message %d after %d, tail %d", m.ID, last, q.tail)
		}
		last = m.ID
		n, bytes, stored = n+1, bytes+int64(m.BodyBytes), stored+int64(m.Ref.Length)
		t := totals[m.Priority]
		totals[m.Priority] = PriorityTotal{m.Priority, t.Messages + 1, t.Bytes + int64(m.BodyBytes)}
		if x, ok := q.Next(m.Priority, m.ID-1); !ok || x.ID != m.ID {
			return fmt.Errorf("message %d is not in lane %d", m.ID, m.Priority)
		}
		if m.ExpiresAt != 0 {
			expiring[m.ID] = true
		}
	}
	if n != q.n || bytes != q.bytes || stored != q.stored {
		return fmt.Errorf("counted %d messages, %d and %d bytes; have %d, %d and %d", n, bytes, stored, q.n, q.bytes, q.stored)
	}
	if len(totals) != len(q.lanes) {
		return fmt.Errorf("%d lanes, want %d", len(q.lanes), len(totals))
	}
	for i, t := range q.TotalPerPriority() {
		if t != totals[t.Priority] || i > 0 && q.lanes[i-1].priority <= t.Priority {
			return fmt.Errorf("lane %+v, want %+v", t, totals[t.Priority])
		}
	}
	return q.checkExpiry(expiring)
}

func (q *Queue) checkExpiry(expiring map[MessageID]bool) error {
	var last expiryEntry
	var err error
	q.expiry.walk(q, -1<<63, 1<<63-1, func(e expiryEntry) bool {
		switch {
		case !expiring[e.id]:
			err = fmt.Errorf("message %d is in the expiry index without cause", e.id)
		case e.before(last):
			err = fmt.Errorf("expiry %+v after %+v", e, last)
		}
		delete(expiring, e.id)
		last = e
		return err == nil
	})
	if err == nil && len(expiring) > 0 {
		err = fmt.Errorf("%d messages miss in the expiry index", len(expiring))
	}
	return err
}
