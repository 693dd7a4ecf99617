package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestTransactions shows U10: what tx.commit and tx.rollback do, within a queue and
// over several.
func TestTransactions(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "U10 commit shows everything, rollback nothing", run: txPublishes},
		{name: "U10 settlements wait for the commit and come back by a rollback", run: txSettlements},
		{name: "returns come at the commit", run: txReturns},
		{name: "U10 refusals", run: txRefusals},
		{name: "a limit refuses the whole transaction", warrenOnly: true, run: txLimit},
		{name: "the time to live begins at the commit", run: txTTL},
		{name: "a delay begins at the commit, and a reply leaves at it", warrenOnly: true, run: txDelayAndReply},
	})
}

// txChannel opens a transactional channel.
func (s *session) txChannel() *amqp.Channel {
	s.Helper()
	ch, err := s.conn.Channel()
	s.noError("open a channel", err)
	s.noError("tx.select", ch.Tx())
	return ch
}

func (s *session) sendTo(ch *amqp.Channel, exchange, key string, bodies ...string) {
	s.Helper()
	for _, b := range bodies {
		s.noError("publish", ch.PublishWithContext(s.Context(), exchange, key, true, false, message(b)))
	}
}

func txPublishes(s *session) {
	x := s.exchange("x", "fanout", nil)
	a, b := s.queue("a", nil), s.queue("b", nil)
	mem, err := s.ch.QueueDeclare(s.name("mem"), false, true, true, false, nil)
	s.noError("declare", err)
	for _, q := range []string{a, b, mem.Name} {
		s.bind(q, "", x, nil)
	}
	ch := s.txChannel()
	s.sendTo(ch, "", a, "1", "2")
	s.sendTo(ch, x, "", "3")
	s.ready(a, 0)
	s.noError("commit", ch.TxCommit())
	for q, want := range map[string]int{a: 3, b: 1, mem.Name: 1} {
		d, err := s.ch.QueueDeclarePassive(q, q != mem.Name, q == mem.Name, q == mem.Name, false, nil)
		if s.noError("look", err); d.Messages != want {
			s.Errorf("%s has %d messages right after the commit, want %d", q, d.Messages, want)
		}
	}
	s.sendTo(ch, x, "", "4")
	s.noError("rollback", ch.TxRollback())
	s.noError("an empty commit", ch.TxCommit())
	s.sendTo(ch, x, "", "5")
	s.noError("close", ch.Close())
	s.holds(a, "1", "2", "3")
	s.holds(b, "3")
	s.holds(mem.Name, "3")
}

func txSettlements(s *session) {
	dead := s.queue("dead", nil)
	a := s.queue("a", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	b := s.queue("b", nil)
	s.fill(a, "a1", "a2", "a3")
	s.fill(b, "b1")
	ch := s.txChannel()
	var got []amqp.Delivery
	for _, q := range []string{a, a, a, b} {
		d, ok, err := ch.Get(q, false)
		if s.noError("get", err); !ok {
			s.Fatalf("nothing in %s", q)
		}
		got = append(got, d)
	}
	settle := func() {
		s.noError("ack", got[0].Ack(false))
		s.noError("reject", got[1].Reject(false))
		s.noError("nack", got[2].Nack(false, true))
		s.noError("ack", got[3].Ack(false))
	}
	settle()
	s.noError("rollback", ch.TxRollback())
	s.ready(a, 0) // unacked again, not requeued
	s.ready(b, 0)
	settle()
	s.noError("commit", ch.TxCommit())
	s.holds(a, "a3")
	s.holds(dead, "a2")
	s.noError("close", ch.Close())
	s.ready(b, 0)
	s.ready(a, 0)
}

func txReturns(s *session) {
	a := s.queue("a", nil)
	ch := s.txChannel()
	returns := ch.NotifyReturn(make(chan amqp.Return, 10))
	s.sendTo(ch, "", s.name("none"), "forgotten")
	s.noError("rollback", ch.TxRollback())
	s.sendTo(ch, "", a, "1")
	s.sendTo(ch, "", s.name("none"), "back")
	s.noError("commit", ch.TxCommit())
	select {
	case r := <-returns:
		if r.ReplyCode != amqp.NoRoute || string(r.Body) != "back" {
			s.Errorf("returned %d %q", r.ReplyCode, r.Body)
		}
	default:
		s.Error("nothing was returned before the commit was answered")
	}
	s.holds(a, "1")
}

// refusedTx checks the error that a channel ended with.
func (s *session) refusedTx(err error, code int, reason string) {
	s.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) || e.Code != code || reason != "" && e.Reason != reason {
		s.Errorf("refused with %v, want %d %q", err, code, reason)
	}
}

func txRefusals(s *session) {
	a := s.queue("a", nil)
	plain, err := s.conn.Channel()
	s.noError("open a channel", err)
	s.refusedTx(plain.TxCommit(), 406, "PRECONDITION_FAILED - channel is not transactional")
	s.refusedTx(s.channel(s.conn).Tx(), 406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode")
	s.refusedTx(s.txChannel().Confirm(false), 406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode")
	ch := s.txChannel()
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	s.sendTo(ch, "", a, "1")
	s.sendTo(ch, s.name("missing"), "", "2")
	select {
	case e := <-closed:
		s.refusedTx(e, 404, "")
	case <-time.After(timeoutReply):
		s.Fatal("publishing to a missing exchange is not refused")
	}
	s.ready(a, 0)
}

func txLimit(s *session) {
	full := s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	a := s.queue("a", nil)
	s.fill(full, "1")
	s.fill(a, "1")
	for _, n := range []int{1, 5} { // whichever of them coordinates
		ch := s.txChannel()
		d, _, err := ch.Get(a, false)
		s.noError("get", err)
		for range n {
			s.sendTo(ch, "", a, "2")
		}
		s.sendTo(ch, "", full, "2", "3")
		s.noError("ack", d.Ack(false))
		s.refusedTx(ch.TxCommit(), 406, fmt.Sprintf("PRECONDITION_FAILED - transaction refused, nothing was done: queue '%s' in vhost '/' is full", full))
		s.ready(a, 1)
		s.ready(full, 1)
	}
	s.holds(a, "1")
	s.holds(full, "1")
}

func txTTL(s *session) {
	a, b := s.queue("a", nil), s.queue("b", nil)
	ch := s.txChannel()
	m := message("x")
	m.Expiration = "1000"
	var there [2]int
	gone := func() { s.ready(a, 0); s.ready(b, 0) }
	s.within(1900*time.Millisecond, func() {
		for _, q := range []string{a, b} {
			s.noError("publish", ch.PublishWithContext(s.Context(), "", q, false, false, m))
		}
		time.Sleep(1100 * time.Millisecond)
		s.noError("commit", ch.TxCommit())
		for i, q := range []string{a, b} {
			d, err := s.ch.QueueDeclarePassive(q, true, false, false, false, nil)
			s.noError("look", err)
			there[i] = d.Messages
		}
	}, gone)
	if there != [2]int{1, 1} {
		s.Errorf("%v messages right after the commit", there)
	}
	gone()
}

func txDelayAndReply(s *session) {
	x := s.delayedExchange("x", "fanout")
	q := s.queue("q", nil)
	s.bind(q, "", x, nil)
	asking, err := s.conn.Channel()
	s.noError("open a channel", err)
	replies, err := asking.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	s.noError("consume replies", err)
	request := message("request")
	request.ReplyTo = "amq.rabbitmq.reply-to"
	s.noError("publish", asking.PublishWithContext(s.Context(), "", q, false, false, request))
	ch := s.txChannel()
	d := s.get(q)
	s.sendTo(ch, "", d.ReplyTo, "reply")
	s.noError("publish", ch.PublishWithContext(s.Context(), x, "", true, false, delayed("late", 300)))
	time.Sleep(350 * time.Millisecond)
	select {
	case r := <-replies:
		s.Errorf("the reply %q left before the commit", r.Body)
	default:
	}
	begin := time.Now()
	s.noError("commit", ch.TxCommit())
	if r := s.next(replies); string(r.Body) != "reply" {
		s.Errorf("replied %q", r.Body)
	}
	if late := s.get(q); string(late.Body) != "late" || tooEarly(begin, 300*time.Millisecond) {
		s.Errorf("%q came after %v", late.Body, time.Since(begin))
	}
}

// txBooks are the transactions of TestTransactionsSurvive by their outcome.
type txBooks struct {
	mu        sync.Mutex
	committed map[string]bool
	undone    map[string]bool // rolled back or refused
	unknown   map[string]bool
	longest   time.Duration
}

func (b *txBooks) note(list map[string]bool, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list[name] = true
}

func (b *txBooks) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.committed)
}

// TestTransactionsSurvive commits over three queues, each led by another node, while
// nodes are killed. Each transaction takes a job from a fourth queue and puts its result
// into the three, all of it or nothing.
func TestTransactionsSurvive(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	// Leaders are spread, so that three of these are led by different nodes.
	queues := map[string]string{}
	for i := 0; len(queues) < 3 && i < 12; i++ {
		q := plainQueue(at(t, c.Node(i%3)), fmt.Sprint("tx", i), nil)
		leader, _ := leaderOf(t, c, q)
		if queues[leader.Name] == "" {
			queues[leader.Name] = q
		}
	}
	if len(queues) < 3 {
		t.Fatalf("leaders on %d nodes only", len(queues))
	}
	x := "tx.fan"
	s.noError("declare", s.ch.ExchangeDeclare(x, "fanout", true, false, false, false, nil))
	for _, q := range queues {
		s.bind(q, "", x, nil)
	}
	jobs := plainQueue(s, "tx.jobs", nil)
	full := plainQueue(s, "tx.full", amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"})
	const n = 4000
	s.fill(jobs, numbered("job", n)...)

	books := &txBooks{committed: map[string]bool{}, undone: map[string]bool{}, unknown: map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	for i := range 6 {
		work.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				txWorker(ctx, c.Node((i+life)%3).URL(), fmt.Sprintf("w%d.%d", i, life), x, jobs, full, books)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	progress := func(n int) {
		t.Helper()
		before := books.count()
		s.until(fmt.Sprintf("%d more transactions", n), func() bool { return books.count() >= before+n })
	}
	progress(60)
	for i := range 2 {
		kill(t, c.Node(2-i))
		progress(60)
		start(t, c.Node(2-i))
		progress(60)
	}
	stop()
	work.Wait()
	t.Logf("%d committed, %d rolled back or refused, %d unknown; longest commit %v",
		len(books.committed), len(books.undone), len(books.unknown), books.longest.Round(time.Millisecond))

	placed := txPlaced(s, queues, books)
	for name, n := range placed {
		switch {
		case n != 3:
			t.Errorf("transaction %s is in %d of 3 queues", name, n)
		case !books.committed[name] && !books.unknown[name]:
			t.Errorf("transaction %s was not committed and is there", name)
		}
	}
	for name := range books.committed {
		if placed[name] == 0 {
			t.Errorf("transaction %s was committed and is not there", name)
		}
	}
	s.ready(full, 0)
	// Every committed transaction has taken its job with it.
	if left := len(s.drain(jobs)); left > n-len(books.committed) {
		t.Errorf("%d jobs are left after %d transactions of %d", left, len(books.committed), n)
	}
}

// txPlaced takes what is in the queues, until all transactions are whole and those that were committed are there, and counts in how many
// queues each is: the parts of the last ones come a moment later than others.
func txPlaced(s *session, queues map[string]string, books *txBooks) map[string]int {
	s.Helper()
	placed := map[string]int{}
	seen := map[[2]string]bool{}
	whole := func() bool {
		for _, q := range queues {
			for _, body := range s.drain(q) {
				if seen[[2]string{q, body}] {
					s.Errorf("%s is in %s twice", body, q)
				}
				seen[[2]string{q, body}] = true
				placed[body]++
			}
		}
		for _, n := range placed {
			if n != 3 {
				return false
			}
		}
		for name := range books.committed {
			if placed[name] == 0 {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(timeoutReply); !whole() && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
	}
	time.Sleep(200 * time.Millisecond)
	whole() // what must not come has not come since
	return placed
}

// txWorker makes transactions until its connection or channel ends.
func txWorker(ctx context.Context, url, name, exchange, jobs, full string, books *txBooks) {
	conn, err := connectWith(url, amqp.Config{Heartbeat: 10 * time.Second})
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil || ch.Tx() != nil {
		return
	}
	for i := 1; ctx.Err() == nil; i++ {
		d, ok, err := ch.Get(jobs, false)
		if err != nil || !ok {
			return
		}
		tx := fmt.Sprintf("%s.%d", name, i)
		if ch.PublishWithContext(ctx, exchange, "", false, false, message(tx)) != nil {
			return
		}
		if i%50 == 0 { // 406, and the channel ends
			_ = ch.PublishWithContext(ctx, "", full, false, false, message(tx))
		}
		if d.Ack(false) != nil {
			return
		}
		if i%10 == 0 {
			books.note(books.undone, tx)
			if ch.TxRollback() != nil || d.Nack(false, true) != nil {
				return
			}
			continue
		}
		began := time.Now()
		err = ch.TxCommit()
		var e *amqp.Error
		switch {
		case err == nil:
			books.note(books.committed, tx)
			books.mu.Lock()
			books.longest = max(books.longest, time.Since(began))
			books.mu.Unlock()
			continue
		case errors.As(err, &e) && e.Code == 406:
			books.note(books.undone, tx)
		default:
			books.note(books.unknown, tx)
		}
		return
	}
}
