package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
)

// Conn is one client connection in one vhost. Its methods are called by one
// goroutine at a time.
type Conn struct {
	b     *Broker
	id    uint64
	user  User
	vhost string
	info  ConnInfo
	owner catalog.Owner
	// login is the name of the user, which stays whatever UpdateUser takes.
	login string
	// brought tells that the login says what the user may do, who then need not be in the catalog.
	brought      bool
	vhostCreated uint64 // log index: another vhost may get the name
	userAdded    uint64 // the same of the user, see auth.User
	traffic      *traffic
	// logins counts those that UpdateUser has taken.
	logins uint64

	mu        sync.Mutex
	channels  map[*Channel]struct{}
	exclusive map[uint64]string // exclusive queues by id
	// exclusiveMax is how many of them make it worthwhile to look for those that have ended.
	exclusiveMax int
}

// UpdateUser takes what a user's new login tells of them: the tags, and what they may do if it says that. Errors are *Error with
// NotAllowed, when the user may not be in the vhost any more.
func (c *Conn) UpdateUser(u User) error {
	if err := u.enters(c.b.cat.View(), c.vhost); err != nil {
		return err
	}
	c.user = u
	c.logins++ // what channels have found before counts no longer
	return nil
}

// MayRead tells whether the user may still consume from a queue.
func (c *Conn) MayRead(queue string) bool {
	return queue == ReplyQueue || c.permits(c.b.cat.View(), auth.Read, queueResource(queue)) == nil
}

// Close closes the channels and deletes the connection's exclusive queues. Those that the catalog does not delete in time are
// deleted when it can.
func (c *Conn) Close(ctx context.Context) {
	c.uncount()
	c.mu.Lock()
	channels := make([]*Channel, 0, len(c.channels))
	for ch := range c.channels {
		channels = append(channels, ch)
	}
	exclusive := c.exclusive
	c.exclusive = nil
	c.mu.Unlock()
	for _, ch := range channels {
		ch.Close(ctx)
	}
	c.deleteExclusive(ctx, exclusive)
}

// deleteExclusive deletes queues of a connection that has ended. After one that failed it waits for no other: all of them would.
func (c *Conn) deleteExclusive(ctx context.Context, queues map[uint64]string) {
	for id, name := range queues {
		if c.b.hasLeft(id) {
			delete(queues, id)
			continue
		}
		if _, err := c.change(ctx, &catalog.DeleteQueue{Vhost: c.vhost, Name: name, ID: id}); err != nil {
			c.b.cfg.Logger.Warn("exclusive queues are not deleted yet", "queues", len(queues), "one", name, "vhost", c.vhost, "err", err)
			c.b.orphaned(slices.Collect(maps.Keys(queues))...)
			return
		}
		delete(queues, id)
	}
}

// uncount makes room for another connection, once.
func (c *Conn) uncount() {
	c.b.mu.Lock()
	_, open := c.b.conns[c.id]
	delete(c.b.conns, c.id)
	c.b.mu.Unlock()
	if open {
		c.b.census.connectionEnds(c.vhost, c.user.Name)
	}
}

// asError turns whatever a use case met into a refusal.
func asError(err error) error {
	var e *Error
	var a *amqp.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.As(err, &a):
		return &Error{Kind: kindOf(a.Code), Text: a.Text}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Errorf(TimedOut, "operation timed out")
	case errors.Is(err, catalog.ErrUnknownOutcome): // this node was away for long, or is being stopped
		return Errorf(TimedOut, "it is not known whether the change was made")
	case errors.Is(err, catalog.ErrLevel):
		return Errorf(PreconditionFailed, "%v: all nodes must have a program that knows it", err)
	}
	return Errorf(Internal, "%v", err)
}

func kindOf(code uint16) Kind {
	switch code {
	case amqp.NotFound:
		return NotFound
	case amqp.AccessRefused:
		return AccessRefused
	case amqp.PreconditionFailed:
		return PreconditionFailed
	case amqp.ResourceLocked:
		return ResourceLocked
	case amqp.NotAllowed:
		return NotAllowed
	case amqp.NotImplemented:
		return NotImplemented
	}
	return Internal
}

// queueError words the failure of an operation on a queue.
func (c *Conn) queueError(err error, name string) error {
	switch {
	case errors.Is(err, errQueueGone):
		return Errorf(NotFound, "no queue '%s' in vhost '%s'", name, c.vhost)
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(Unavailable, "queue '%s' in vhost '%s' has no leader within reach", name, c.vhost)
	case errors.Is(err, errQueueMoved):
		return Errorf(Unavailable, "queue '%s' in vhost '%s' was being recovered", name, c.vhost)
	}
	return asError(err)
}

func (c *Conn) impersonator() bool { return slices.Contains(c.user.Tags, "impersonator") }

// change proposes a catalog command and waits until this node has applied it.
func (c *Conn) change(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.b.cfg.QueueTimeout)
	defer cancel()
	res, err := c.b.propose(ctx, cmd)
	return res, asError(err)
}

// changeSeen is change, and waits a moment for the other living nodes, so that
// the client's next operation on any of them sees it.
func (c *Conn) changeSeen(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	res, err := c.change(ctx, cmd)
	if err == nil && res.Changed {
		c.b.awaitEveryone(ctx, res.Index)
	}
	return res, err
}

// awaitEveryone waits a moment for the other living nodes to apply the catalog up to index.
func (b *Broker) awaitEveryone(ctx context.Context, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, everyoneWait)
	defer cancel()
	// A node that is slow is no reason to refuse: it asks the catalog leader
	// before it denies anything.
	_ = b.cat.WaitEveryone(ctx, index)
}

// seenEverywhere is awaitEveryone beside what the caller does next. The channel is closed at its end.
func (b *Broker) seenEverywhere(ctx context.Context, index uint64) <-chan struct{} {
	done := make(chan struct{})
	if !b.tasks.start(func() {
		defer close(done)
		b.awaitEveryone(ctx, index)
	}) {
		close(done) // the broker ends
	}
	return done
}

// DeclareExchange declares an exchange, or checks that it is there.
func (c *Conn) DeclareExchange(ctx context.Context, d ExchangeDeclare) error {
	_, err := c.makeExchange(ctx, d)
	return err
}

// makeExchange is DeclareExchange, and tells whether this declaration made it: of several at the same time one did.
func (c *Conn) makeExchange(ctx context.Context, d ExchangeDeclare) (made bool, err error) {
	d.Name = stripLines(d.Name)
	if d.Name == "" {
		return false, errDefaultExchange()
	}
	if d.Passive {
		if err := c.allowedAny(ctx, exchangeResource(d.Name)); err != nil {
			return false, err
		}
		_, err := c.exchange(ctx, d.Name)
		return false, err
	}
	view := c.b.cat.View()
	if err := c.allowed(ctx, view, auth.Configure, exchangeResource(d.Name)); err != nil {
		return false, err
	}
	typ, err := exchange.ParseType(d.Type)
	if err == nil {
		err = exchange.Validate(typ, d.Arguments)
	}
	if err != nil {
		return false, asError(err)
	}
	x := view.Exchange(c.vhost, d.Name)
	if x != nil && c.sameExchange(d, typ, x) != nil {
		// What this copy still has may have been deleted: nobody is refused for that.
		if view, err = c.b.fresh(ctx); err != nil {
			return false, err
		}
		x = view.Exchange(c.vhost, d.Name)
	}
	if x != nil {
		if err := c.sameExchange(d, typ, x); err != nil || !c.outlived(view, x) {
			return false, err
		}
	}
	if x == nil && strings.HasPrefix(d.Name, "amq.") {
		return false, Errorf(AccessRefused, "exchange name '%s' contains reserved prefix 'amq.*'", d.Name)
	}
	if x == nil {
		if err := c.checkAlternate(ctx, view, d); err != nil {
			return false, err
		}
	}
	res, err := c.changeSeen(ctx, c.b.exchangeOf(c.vhost, d, typ))
	if err != nil {
		return false, err
	}
	// Somebody else may have declared it first, and differently.
	x = c.b.cat.View().Exchange(c.vhost, d.Name)
	if x == nil {
		return res.Changed, nil
	}
	if err := c.sameExchange(d, typ, x); err != nil {
		return false, err
	}
	return res.Changed, c.delaysReady(ctx, x)
}

// outlived tells whether an exchange that is not durable was last declared before the
// cluster stopped as a whole, as far as this node can tell. It goes when all nodes are back
// unless it is declared again.
func (c *Conn) outlived(view *catalog.View, x *catalog.Exchange) bool {
	n := view.Node(catalog.NodeID(c.b.cfg.Node))
	return !x.Durable && n != nil && x.Renewed < n.Since
}

// delaysReady waits until the queue of a new delayed exchange has a leader.
func (c *Conn) delaysReady(ctx context.Context, x *catalog.Exchange) error {
	q := c.b.cat.View().QueueByID(x.DelayQueue)
	if x.DelayQueue == 0 || q == nil {
		return nil
	}
	if _, err := c.b.status(ctx, q, false); err != nil {
		return Errorf(Unavailable, "the messages of exchange '%s' in vhost '%s' have no leader within reach", x.Name, c.vhost)
	}
	return nil
}

func errDefaultExchange() error {
	return Errorf(AccessRefused, "operation not permitted on the default exchange")
}

func stripLines(name string) string {
	if !strings.ContainsAny(name, "\r\n") {
		return name
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(name) // what is no UTF-8 stays as it is
}

func (c *Conn) checkAlternate(ctx context.Context, view *catalog.View, d ExchangeDeclare) error {
	v, ok := d.Arguments.Get("alternate-exchange")
	if !ok {
		return nil
	}
	if err := checkAlternateType(c.vhost, d); err != nil {
		return err
	}
	ae, _ := v.(string)
	if err := c.allowed(ctx, view, auth.Read, exchangeResource(d.Name)); err != nil {
		return err
	}
	return c.allowed(ctx, view, auth.Write, exchangeResource(ae))
}

func (c *Conn) sameExchange(d ExchangeDeclare, typ exchange.Type, x *catalog.Exchange) error {
	differ := func(arg string, got, has any) error {
		return Errorf(PreconditionFailed, "inequivalent arg '%s' for exchange '%s' in vhost '%s': received '%v' but current is '%v'", arg, x.Name, c.vhost, got, has)
	}
	switch {
	case typ != x.Type:
		return differ("type", typ, x.Type)
	case d.Durable != x.Durable:
		return differ("durable", d.Durable, x.Durable)
	case d.AutoDelete != x.AutoDelete:
		return differ("auto_delete", d.AutoDelete, x.AutoDelete)
	case d.Internal != x.Internal:
		return differ("internal", d.Internal, x.Internal)
	}
	for _, arg := range []string{"alternate-exchange", "x-delayed-type"} {
		if arg == "x-delayed-type" && typ != exchange.Delayed {
			continue
		}
		got, hasGot := d.Arguments.Get(arg)
		cur, hasCur := x.Arguments.Get(arg)
		if hasGot != hasCur || hasGot && !sameValue(got, cur) {
			return Errorf(PreconditionFailed, "inequivalent arg '%s' for exchange '%s' in vhost '%s': %s", arg, x.Name, c.vhost, unlike(got, hasGot, cur, hasCur))
		}
	}
	return nil
}

// DeleteExchange deletes an exchange; a missing one is fine.
func (c *Conn) DeleteExchange(ctx context.Context, name string, ifUnused bool) error {
	name = stripLines(name)
	if name == "" {
		return errDefaultExchange()
	}
	if strings.HasPrefix(name, "amq.") {
		return Errorf(AccessRefused, "deletion of system exchange '%s' in vhost '%s' not allowed", name, c.vhost)
	}
	if err := c.allowed(ctx, c.b.cat.View(), auth.Configure, exchangeResource(name)); err != nil {
		return err
	}
	_, err := c.changeSeen(ctx, &catalog.DeleteExchange{Vhost: c.vhost, Name: name, IfUnused: ifUnused})
	return err
}

// Bind makes a binding.
func (c *Conn) Bind(ctx context.Context, bd Binding) error {
	x, err := c.bindable(ctx, bd)
	if err != nil {
		return err
	}
	if err := exchange.ValidateBinding(x.Type, x.Arguments, bd.Key, bd.Arguments); err != nil {
		return asError(err)
	}
	_, err = c.changeSeen(ctx, &catalog.Bind{Binding: c.binding(bd)})
	return err
}

// Unbind removes a binding; a missing one is fine, and so is one whose exchange or queue
// is missing, as in RabbitMQ since 3.2.
func (c *Conn) Unbind(ctx context.Context, bd Binding) error {
	_, err := c.bindable(ctx, bd)
	if e, refused := errors.AsType[*Error](err); refused && e.Kind == NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = c.changeSeen(ctx, &catalog.Unbind{Binding: c.binding(bd)})
	return err
}

func (c *Conn) binding(bd Binding) catalog.Binding {
	return catalog.Binding{
		Vhost: c.vhost, Source: bd.Source, Destination: bd.Destination, ToExchange: bd.ToExchange,
		Key: bd.Key, Arguments: bd.Arguments.Clone(),
	}
}

// bindable checks permissions and that both ends exist.
func (c *Conn) bindable(ctx context.Context, bd Binding) (source *catalog.Exchange, err error) {
	if bd.Source == "" || bd.ToExchange && bd.Destination == "" {
		return nil, errDefaultExchange()
	}
	if !bd.ToExchange && strings.HasPrefix(bd.Destination, replyPrefix) {
		return nil, Errorf(AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")
	}
	view := c.b.cat.View()
	dest := queueResource(bd.Destination)
	if bd.ToExchange {
		dest = exchangeResource(bd.Destination)
	}
	if err := c.allowed(ctx, view, auth.Write, dest); err != nil {
		return nil, err
	}
	if err := c.allowed(ctx, view, auth.Read, exchangeResource(bd.Source)); err != nil {
		return nil, err
	}
	if source, err = c.exchange(ctx, bd.Source); err != nil {
		return nil, err
	}
	if bd.ToExchange {
		_, err = c.exchange(ctx, bd.Destination)
	} else {
		_, err = c.find(ctx, bd.Destination)
	}
	if err != nil || source.Type != exchange.Topic {
		return source, err
	}
	return source, c.checkKeys(c.user.rights(view).keys(c.vhost, bd.Source), auth.Read, bd.Source, bd.Key)
}

// serverName makes up a queue name.
func serverName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "amq.gen-" + base64.RawURLEncoding.EncodeToString(b[:])
}
