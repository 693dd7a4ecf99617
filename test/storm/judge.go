package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// What may be left at a node after a storm that was not there before.
const (
	goroutinesMore = 15
	filesMore      = 8
	heapMore       = 16 << 20
)

// figures are what a node takes.
type figures struct {
	goroutines, files int
	heap              int
}

func (f figures) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d KiB", f.goroutines, f.files, f.heap>>10)
}

var (
	goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\S+)`)
	filesLine      = regexp.MustCompile(`(?m)^process_open_fds (\S+)`)
	cacheLine      = regexp.MustCompile(`(?m)^warren_store_cache_bytes (\S+)`)
	heapLine       = regexp.MustCompile(`(?m)^# HeapAlloc = (\S+)`)
)

// measure asks a node what it takes.
func measure(ctx context.Context, n *cluster.Node) (f figures, err error) {
	heap, err := n.Fetch(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return f, err
	}
	text, err := n.Fetch(ctx, "/metrics")
	if err != nil {
		return f, err
	}
	cache := 0 // has a bound of its own
	for to, from := range map[*int][2]any{&cache: {cacheLine, text}, &f.goroutines: {goroutinesLine, text}, &f.files: {filesLine, text}, &f.heap: {heapLine, heap}} {
		m := from[0].(*regexp.Regexp).FindSubmatch(from[1].([]byte))
		if m == nil {
			return f, errors.New("the node does not tell what it takes")
		}
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return f, err
		}
		*to = int(v)
	}
	f.heap -= cache
	return f, nil
}

// measureSettled has a client of each protocol at each node, so that all is there which the first ones bring, and measures then.
func (w *world) measureSettled(ctx context.Context) (list []figures, err error) {
	for _, n := range w.cluster.Nodes() {
		if err := w.fresh(ctx, n); err != nil {
			return nil, err
		}
	}
	sleep(ctx, 2*time.Second)
	for _, n := range w.cluster.Nodes() {
		f, err := measure(ctx, n)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

// judge looks at what is left when all clients have gone.
func (w *world) judge(ctx context.Context, before []figures) error {
	w.lists(ctx)
	if err := w.askQueues(ctx); err != nil {
		return err
	}
	for _, n := range w.cluster.Nodes() {
		if err := w.fresh(ctx, n); err != nil {
			w.find("a fresh client", "at %s: %v", n.Name, err)
		}
	}
	if err := w.clear(ctx); err != nil {
		return err
	}
	for i, n := range w.cluster.Nodes() {
		w.settles(ctx, n, before[i])
	}
	return nil
}

// lists sees that nobody is listed any more.
func (w *world) lists(ctx context.Context) {
	for _, n := range w.cluster.Nodes() {
		for _, what := range []string{"connections", "channels", "consumers"} {
			var answer []byte
			err := w.within(ctx, func() (bool, error) {
				var err error
				var status int
				status, answer, err = w.ask(ctx, n, http.MethodGet, what, "")
				return err == nil && status == http.StatusOK && strings.TrimSpace(string(answer)) == "[]", nil
			})
			if err != nil {
				w.find("clients that have left", "%s still lists %s: %.2000s", n.Name, what, answer)
			}
		}
	}
}

// within asks until the answer is yes or the time to settle is over.
func (w *world) within(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Settle)
	defer cancel()
	return cluster.Poll(ctx, done)
}

// listed is a queue of the management API's list.
type listed struct {
	Name, VHost string
	Exclusive   bool
}

func (w *world) queues(ctx context.Context) (list []listed, err error) {
	status, answer, err := w.ask(ctx, w.cluster.Node(0), http.MethodGet, "queues", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("list of queues: %d %s", status, answer)
	}
	if err == nil {
		err = json.Unmarshal(answer, &list)
	}
	return list, err
}

// askQueues sees that each queue answers.
func (w *world) askQueues(ctx context.Context) error {
	list, err := w.queues(ctx)
	if err != nil {
		return err
	}
	w.answered(fmt.Sprintf("%d queues left", len(list)))
	for i, q := range list {
		n := w.cluster.Nodes()[i%clusterNodes]
		err := w.within(ctx, func() (bool, error) {
			err = w.askQueue(ctx, n, q)
			return err == nil, nil
		})
		if err == nil {
			continue
		}
		now, listing := w.queues(ctx)
		if listing != nil {
			return listing
		}
		for _, still := range now {
			if still == q {
				w.find("a queue does not answer", "%+v at %s: %v", q, n.Name, w.askQueue(ctx, n, q))
			}
		}
	}
	return nil
}

func dialAMQP(n *cluster.Node, vhost string) (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.DialConfig("amqp://guest:guest@"+n.AMQPAddr(), amqp.Config{Vhost: vhost, Heartbeat: 30 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, ch, nil
}

func (w *world) askQueue(ctx context.Context, n *cluster.Node, q listed) error {
	conn, ch, err := dialAMQP(n, q.VHost)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := ch.QueueDeclarePassive(q.Name, false, false, false, false, nil); err != nil {
		if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.NotFound && strings.Contains(e.Reason, "no queue") {
			return nil // it has expired, or been deleted with its last consumer
		}
		return fmt.Errorf("passive declaration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	sent, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", q.Name, false, false, amqp.Publishing{Body: []byte("after the storm")})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if _, err := sent.WaitContext(ctx); err != nil { // a full one refuses
		return fmt.Errorf("confirm: %w", err)
	}
	if _, _, err = ch.Get(q.Name, true); err != nil {
		if e, ok := errors.AsType[*amqp.Error](err); ok && (e.Code == amqp.NotFound || e.Code == amqp.ResourceLocked || e.Code == amqp.NotAllowed) {
			return nil // expired, or with a single active consumer
		}
		return fmt.Errorf("get: %w", err)
	}
	return nil
}

// fresh is a client of each protocol that has nothing to do with the storm.
func (w *world) fresh(ctx context.Context, n *cluster.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, ch, err := dialAMQP(n, "/")
	if err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	defer conn.Close()
	q, err := ch.QueueDeclare("", true, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	sent, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", q.Name, true, false, amqp.Publishing{Body: []byte("one")})
	if err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	if ok, err := sent.WaitContext(ctx); err != nil || !ok {
		return fmt.Errorf("amqp: confirm %v: %w", ok, err)
	}
	rpc, err := dialRPC(n.GRPCAddr(), login{"guest", "guest"})
	if err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	defer rpc.Close()
	got, err := warrenv1.NewConsumeServiceClient(rpc).Get(ctx, &warrenv1.GetRequest{Queue: q.Name})
	if err != nil || len(got.GetDeliveries()) != 1 {
		return fmt.Errorf("grpc: %v: %w", got, err)
	}
	if status, answer, err := w.ask(ctx, n, http.MethodDelete, "queues/%2F/"+url.PathEscape(q.Name), ""); err != nil || status != http.StatusNoContent {
		return fmt.Errorf("http: %d %s: %w", status, answer, err)
	}
	return nil
}

// clear takes all away that clients have made.
func (w *world) clear(ctx context.Context) error {
	list, err := w.queues(ctx)
	if err != nil {
		return err
	}
	var all []deed
	for _, q := range list {
		all = append(all, deed{http.MethodDelete, "queues/" + url.PathEscape(q.VHost) + "/" + url.PathEscape(q.Name), ""})
	}
	for _, x := range exchanges {
		all = append(all, deed{http.MethodDelete, "exchanges/%2F/" + x.name, ""})
	}
	for _, v := range []string{"v1", "v2"} {
		all = append(all, deed{http.MethodDelete, "vhosts/" + v, ""})
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Settle)
	defer cancel()
	return w.doAll(ctx, w.cluster.Node(0), all)
}

// settles waits until a node takes no more than before.
func (w *world) settles(ctx context.Context, n *cluster.Node, before figures) {
	var now figures
	err := w.within(ctx, func() (bool, error) {
		var err error
		now, err = measure(ctx, n)
		sleep(ctx, 200*time.Millisecond)
		return err == nil && now.goroutines <= before.goroutines+goroutinesMore && now.files <= before.files+filesMore && now.heap <= before.heap+heapMore, nil
	})
	w.answered(fmt.Sprintf("%s: before %v, after %v", n.Name, before, now))
	if err == nil {
		return
	}
	w.find("left behind", "%s took %v before, takes %v", n.Name, before, now)
	for _, what := range []string{"goroutine?debug=1", "heap?gc=1"} {
		profile, err := n.Fetch(ctx, "/debug/pprof/"+what)
		name, _, _ := strings.Cut(what, "?")
		if err == nil {
			err = os.WriteFile(filepath.Join(w.cfg.Dir, n.Name+"."+name), profile, 0o644)
		}
		if err != nil {
			w.find("left behind", "no profile of %s: %v", n.Name, err)
		}
	}
}
