package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// rig is some nodes in this process, as cmd/node puts them together but without broker and clients: meshes
// over loopback, detectors, catalogs and group hosts on files. What it costs is measured, not modelled.
type rig struct {
	dir   string
	ids   []transport.NodeID
	addrs map[transport.NodeID]string
	nodes []*rigNode
	// written counts what all meshes gave to their sockets.
	written, writes atomic.Int64
}

// rigParts says what the nodes of a rig have besides a mesh.
type rigParts struct {
	detector, catalog, host bool
	profile                 group.Profile // of the host; zero is its default
}

type rigNode struct {
	id      transport.NodeID
	mesh    *transport.Mesh
	det     *detector.Detector
	cat     *catalog.Catalog
	st      *store.Store
	host    *group.Host
	stopped bool
}

const rigCluster = "00000000-0000-4000-8000-00000000005c"

// nodeName is the id of a node, of the length that ids have: name and uuid.
func nodeName(i int) transport.NodeID {
	return transport.NodeID(fmt.Sprintf("warren-%d/00000000-0000-4000-8000-%012d", i, i))
}

// newRig starts n nodes in dir and waits until all are linked and, if they have one, the catalog has a leader.
func newRig(dir string, n int, parts rigParts) (*rig, error) {
	r := &rig{dir: dir, addrs: map[transport.NodeID]string{}}
	listeners := make([]net.Listener, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		listeners[i] = countingListener{l, r}
		r.ids = append(r.ids, nodeName(i))
		r.addrs[nodeName(i)] = l.Addr().String()
	}
	for i, id := range r.ids {
		if err := r.start(id, listeners[i], parts); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	for _, nd := range r.nodes {
		nd.mesh.SetPeers(r.ids)
		if nd.det != nil {
			nd.det.SetPeers(r.ids)
		}
	}
	if err := r.await(r.whole); err != nil {
		return nil, errors.Join(fmt.Errorf("a rig of %d nodes does not come up: %w", n, err), r.close())
	}
	return r, nil
}

func (r *rig) start(id transport.NodeID, l net.Listener, parts rigParts) (err error) {
	nd := &rigNode{id: id}
	r.nodes = append(r.nodes, nd)
	log := slog.New(slog.DiscardHandler)
	dir := filepath.Join(r.dir, fmt.Sprint(len(r.nodes)))
	if nd.mesh, err = transport.New(transport.Config{
		Local: id, Listener: l, Logger: log, ClusterID: func() string { return rigCluster },
		Resolve: func(o transport.NodeID) (string, bool) { a, ok := r.addrs[o]; return a, ok },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return countingConn{c, r}, nil
		},
	}); err != nil {
		return err
	}
	if parts.detector {
		if nd.det, err = detector.New(detector.Config{Local: id, Net: nd.mesh, Logger: log}); err != nil {
			return err
		}
	}
	if parts.catalog {
		if nd.cat, err = catalog.Open(catalog.Config{
			Local: id, Dir: filepath.Join(dir, "catalog"), Mesh: nd.mesh, Logger: log,
			Founding: &catalog.Founding{ClusterID: rigCluster, Members: r.ids, Admin: func() (auth.User, error) { return auth.User{Name: "guest"}, nil }},
		}); err != nil {
			return err
		}
		if nd.det != nil {
			nd.det.Subscribe(func(e detector.Event) {
				if e.State == detector.Dead {
					nd.cat.NodeDead(e.Node)
				}
			})
		}
	}
	if parts.host {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if nd.st, err = store.Open(store.Options{
			Dir: filepath.Join(dir, "log"), SegmentBytes: 4 << 20, TailCacheBytes: 8 << 20, LingerMax: 300 * time.Microsecond, Logger: log,
		}); err != nil {
			return err
		}
		nd.host = group.NewHost(group.HostConfig{
			Local: id, Store: group.OverStore(nd.st), Mesh: group.OverMesh(nd.mesh), Detector: nd.det, Logger: log, Profile: parts.profile,
			OnUnknown: func(transport.GroupID, transport.NodeID, uint64) {},
		})
	}
	return nil
}

// rigPatience bounds every wait of a rig: the machine may be busy.
const rigPatience = 2 * time.Minute

var errPatience = errors.New("it takes too long")

func (r *rig) await(done func() bool) error {
	for end := time.Now().Add(rigPatience); !done(); {
		if time.Now().After(end) {
			return errPatience
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// whole tells whether every node hears every other one and knows the catalog's leader.
func (r *rig) whole() bool {
	for _, nd := range r.nodes {
		for _, o := range r.ids {
			if !nd.mesh.Peer(o).Up || nd.det != nil && nd.det.State(o) != detector.Alive {
				return false
			}
		}
		if nd.cat != nil && !nd.cat.Ready() {
			return false
		}
	}
	return true
}

// stop ends a node as a killed process would be seen by the others: its port refuses.
func (nd *rigNode) stop() (err error) {
	if nd.stopped {
		return nil
	}
	nd.stopped = true
	if nd.mesh != nil {
		// First of all, so that nothing is handed over.
		err = nd.mesh.Close()
	}
	if nd.host != nil {
		err = errors.Join(err, nd.host.Close())
	}
	if nd.cat != nil {
		err = errors.Join(err, nd.cat.Close())
	}
	if nd.det != nil {
		err = errors.Join(err, nd.det.Close())
	}
	if nd.st != nil {
		err = errors.Join(err, nd.st.Close())
	}
	return err
}

func (r *rig) close() error {
	errs := make([]error, len(r.nodes))
	var wg sync.WaitGroup
	for i, nd := range r.nodes {
		wg.Go(func() { errs[i] = nd.stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// meter is a reading of what the process and its rig have used.
type meter struct {
	at       time.Time
	cpu      time.Duration
	bytes    int64
	writes   int64
	messages uint64 // of gRPC, both directions at their senders
	frames   uint64
}

func (r *rig) read() meter {
	m := meter{at: time.Now(), cpu: processorTime(), bytes: r.written.Load(), writes: r.writes.Load()}
	for _, nd := range r.nodes {
		s := nd.mesh.Stats()
		// Both count at the side that opened the link: what went out, and the answers that came.
		m.messages += s.MessagesOut + s.MessagesIn
		m.frames += s.FramesOut + s.FramesIn
	}
	return m
}

// since returns the differences to an earlier reading; at is then the time between as of zero.
func (m meter) since(o meter) (d meter, took time.Duration) {
	return meter{
		cpu: m.cpu - o.cpu, bytes: m.bytes - o.bytes, writes: m.writes - o.writes,
		messages: m.messages - o.messages, frames: m.frames - o.frames,
	}, m.at.Sub(o.at)
}

// over measures for d.
func (r *rig) over(d time.Duration) (meter, time.Duration) {
	before := r.read()
	time.Sleep(d)
	return r.read().since(before)
}

// processorTime is what this process has used so far, user and system.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails for bad arguments only
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type countingListener struct {
	net.Listener
	r *rig
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countingConn{c, l.r}, nil
}

type countingConn struct {
	net.Conn
	r *rig
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.r.written.Add(int64(n))
	c.r.writes.Add(1)
	return n, err
}
